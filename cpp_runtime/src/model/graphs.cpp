// The graphs are compiled if torch has CUDA and its headers are found (LENSBOX_CUDA_GRAPHS). Everything but
// the graph itself goes through c10's interfaces for any device, so that nothing here calls the CUDA runtime.

#include <ATen/ATen.h>

#include "model/detector_module.h"
#include "model/torch_errors.h"
#if LENSBOX_CUDA_GRAPHS
#include <ATen/cuda/CUDAGraph.h>
#endif
#include <c10/core/DeviceGuard.h>
#include <c10/core/Event.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/ScopeExit.h>

#include <algorithm>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <utility>

namespace lensbox {

#if LENSBOX_CUDA_GRAPHS
namespace {

// Before a graph is recorded: cuDNN and cuBLAS choose kernels and take their memory in the first calls.
constexpr int kWarmUpCalls = 3;

// pool: memory shared by graphs that never run at the same time.
using Pool = decltype(at::cuda::graph_pool_handle());

void record(at::cuda::CUDAGraph& graph, Pool pool, const std::function<void()>& detect) {
  // Capture this thread alone: other threads may go on working with the GPU.
  graph.capture_begin(pool, cudaStreamCaptureModeThreadLocal);
  try {
    detect();
  } catch (...) {
    // The stream must not stay in capture. The first exception is the one to report.
    try {
      graph.capture_end();
    } catch (const std::exception&) {
    }
    throw;
  }
  graph.capture_end();
}

class RecordedGraphs {
 public:
  RecordedGraphs(const DetectorModule& module, const at::Tensor& canvas,
                 const std::vector<int64_t>& batch_sizes, double score_threshold, double iou_threshold)
      : backend_(c10::kCUDA),
        canvas_(canvas),
        score_threshold_(score_threshold),
        iou_threshold_(iou_threshold) {
    const c10::InferenceMode inference_mode;
    // A graph cannot be recorded on the default stream. Wait for the work enqueued there, such as the copies
    // of weights.
    const c10::Stream stream = backend_.getStreamFromGlobalPool(canvas.device());
    wait_for(backend_.getStream(canvas.device()), stream);
    const c10::StreamGuard on_stream(stream);

    // The largest first, because smaller batches then fit into its memory.
    const Pool pool = at::cuda::graph_pool_handle();
    std::vector<int64_t> sizes = batch_sizes;
    std::ranges::sort(sizes, std::greater());
    for (const int64_t size : sizes) {
      RecordedGraph& recorded = graphs_[size];
      if (recorded.canvases.defined()) continue;  // a size given twice
      recorded.canvases = canvas.repeat({size, 1, 1, 1});
      const auto detect = [&] { return module.detect(recorded.canvases, score_threshold, iou_threshold); };
      for (int call = 0; call < kWarmUpCalls; ++call) {
        detect();
      }
      stream.synchronize();
      record(recorded.graph, pool, [&] { recorded.found = detect(); });
    }
    stream.synchronize();
  }

  // Replays follow each other: the canvases and the graphs' memory are free after the last one.
  RecordedGraphs(const RecordedGraphs&) = delete;
  RecordedGraphs& operator=(const RecordedGraphs&) = delete;
  ~RecordedGraphs() {
    try {
      if (last_use_) last_use_->synchronize();
    } catch (const std::exception&) {  // as in EnqueuedWork
    }
  }

  std::optional<Found> run(const at::Tensor& canvases, double score_threshold, double iou_threshold) {
    const int64_t count = canvases.size(0);
    const auto next = graphs_.lower_bound(count);
    const bool is_alike = canvases.sizes().slice(1) == canvas_.sizes().slice(1) &&
                          canvases.scalar_type() == canvas_.scalar_type() &&
                          canvases.device() == canvas_.device();
    const bool same_thresholds = score_threshold == score_threshold_ && iou_threshold == iou_threshold_;
    if (next == graphs_.end() || !is_alike || !same_thresholds) return std::nullopt;
    return replay(next->second, canvases);
  }

 private:
  // detect, recorded with its own memory for canvases and results.
  struct RecordedGraph {
    at::cuda::CUDAGraph graph;
    at::Tensor canvases;  // [batch size, c, h, w]
    Found found;          // in the graph's memory, overwritten by every replay
  };

  Found replay(RecordedGraph& recorded, const at::Tensor& canvases) {
    const c10::DeviceGuard on_device(canvas_.device());
    const c10::Stream stream = backend_.getStream(canvas_.device());
    const int64_t count = canvases.size(0);
    const std::lock_guard lock(mutex_);
    // Another thread may have used the graphs on another stream.
    if (last_use_) last_use_->block(stream);
    // Also after a failure, such as a lack of memory for the results: the replay runs.
    const auto noted = c10::make_scope_exit([&]() noexcept { note_use(stream); });
    // Beyond `count` lie canvases of earlier calls; their detections are not used.
    recorded.canvases.narrow(0, 0, count).copy_(canvases, /*non_blocking=*/true);
    recorded.graph.replay();
    const auto own = [&](const at::Tensor& tensor) { return tensor.narrow(0, 0, count).clone(); };
    Found found{own(recorded.found.boxes), own(recorded.found.scores), own(recorded.found.counts)};
    if (recorded.found.labels.defined()) found.labels = own(recorded.found.labels);
    for (const at::Tensor& extra : recorded.found.extras) {
      found.extras.push_back(own(extra));
    }
    return found;
  }

  void note_use(const c10::Stream& stream) noexcept {
    try {
      if (!last_use_) last_use_.emplace(c10::kCUDA);
      last_use_->record(stream);
    } catch (const std::exception&) {  // as in EnqueuedWork
    }
  }

  static void wait_for(const c10::Stream& earlier, const c10::Stream& later) {
    c10::Event event(c10::kCUDA);
    event.record(earlier);
    event.block(later);
  }

  c10::impl::VirtualGuardImpl backend_;
  at::Tensor canvas_;
  double score_threshold_;
  double iou_threshold_;
  std::mutex mutex_;
  std::map<int64_t, RecordedGraph> graphs_;
  std::optional<c10::Event> last_use_;
};

}  // namespace

DetectGraphs record_graphs(const DetectorModule& module, const at::Tensor& canvas,
                           const std::vector<int64_t>& batch_sizes, double score_threshold,
                           double iou_threshold) {
  const auto graphs =
      std::make_shared<RecordedGraphs>(module, canvas, batch_sizes, score_threshold, iou_threshold);
  return [graphs](const auto&... arguments) { return graphs->run(arguments...); };
}

#else

DetectGraphs record_graphs(const DetectorModule& /*module*/, const at::Tensor& /*canvas*/,
                           const std::vector<int64_t>& /*batch_sizes*/, double /*score_threshold*/,
                           double /*iou_threshold*/) {
  throw DeviceError(
      "CUDA graphs are not built into this program: build it where " + std::string(kTorchDescription) +
      " is one with CUDA and the CUDA toolkit's headers are found (-DLENSBOX_CUDA_INCLUDE_DIR=)");
}

#endif

}  // namespace lensbox
