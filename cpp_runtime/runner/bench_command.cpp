#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/quantile.h>
#include <ATen/ops/tensor.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <lensbox/torch/tensors.h>
#include <torch/version.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <future>
#include <iterator>

#include "commands.h"
#include "streams.h"

namespace {

using Json = nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

// --- timing ---

// A function to time, for one batch of images.
struct BenchWay {
  std::string name;
  std::function<void()> call;  // may return before the device is done
};

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Wait until the device has done the work of this thread.
void wait_for(c10::Device device) {
  if (!device.is_cuda()) return;
  c10::impl::VirtualGuardImpl(device.type()).getStream(device).synchronize();
}

// Return the milliseconds of each call, up to the result on the device, for `seconds` or more, at least one.
std::vector<double> sample_latencies(const BenchWay& way, c10::Device device, double seconds) {
  std::vector<double> milliseconds;
  const auto start = Clock::now();
  do {
    const auto begin = Clock::now();
    way.call();
    wait_for(device);
    milliseconds.push_back(seconds_since(begin) * 1e3);
  } while (seconds_since(start) < seconds);
  return milliseconds;
}

// Return the calls per second of `callers` threads that repeat the way for `seconds`. On a GPU each thread
// has its own stream. A thread waits for the device after every `calls_between_waits` calls.
double calls_per_second(const BenchWay& way, c10::Device device, double seconds, size_t callers,
                        size_t calls_between_waits) {
  const auto start = Clock::now();
  const auto work = [&] {
    at::init_num_threads();  // the number is each thread's own
    std::optional<c10::StreamGuard> on_stream;
    if (device.is_cuda()) {
      on_stream.emplace(c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device));
    }
    size_t calls = 0;
    do {
      for (size_t i = 0; i < calls_between_waits; ++i) {
        way.call();
      }
      wait_for(device);
      calls += calls_between_waits;
    } while (seconds_since(start) < seconds);
    return calls;
  };
  std::vector<std::future<size_t>> further;
  for (size_t caller = 1; caller < callers; ++caller) {
    further.push_back(std::async(std::launch::async, work));
  }
  size_t calls = work();  // torch is already warm in this thread
  for (std::future<size_t>& caller : further) {
    calls += caller.get();
  }
  return static_cast<double>(calls) / seconds_since(start);
}

// --- the command ---

// Return the self-test's picture, repeated or cropped to the size of the canvas: uint8 [c, h, w].
at::Tensor picture(const lensbox::Metadata& metadata) {
  const lensbox::Canvas& canvas = metadata.reading.canvas;
  const lensbox::SelfTest& test = metadata.self_test;
  const auto [channels, height, width] = test.image_shape;
  return at::tensor(at::ArrayRef<uint8_t>(test.pixels), at::kByte)
      .reshape(test.image_shape)
      .repeat({canvas.channels, canvas.height / height + 1, canvas.width / width + 1})
      .slice(0, 0, canvas.channels)
      .slice(1, 0, canvas.height)
      .slice(2, 0, canvas.width)
      .contiguous();
}

// Return the ways that `bench` times; they share their input, the picture of the self-test as canvases:
//   whole   detect_photos: canvas-sized images in the CPU's memory become detections
//   detect  detect_canvases: canvases on the device become boxes on the device
std::vector<BenchWay> bench_ways(const lensbox::Detector& detector, int64_t batch) {
  const at::Tensor image = picture(detector.metadata());
  std::vector<lensbox::Photo> photos;
  for (int64_t i = 0; i < batch; ++i) {
    photos.push_back(lensbox::Photo::of(image.clone()));
  }
  const at::Tensor canvases = image.unsqueeze(0).repeat({batch, 1, 1, 1}).to(device_of(detector));
  return {{"whole", [&detector, photos] { detect_photos(detector, photos); }},
          {"detect", [&detector, canvases] { detect_canvases(detector, canvases); }}};
}

constexpr double kWarmUpSeconds = 0.3;
constexpr int kWarmUpCalls = 5;               // cuDNN chooses kernels in the first calls
constexpr double kSecondsBetweenWaits = 0.1;  // else a GPU's queue would hold seconds of work
constexpr int kRounds = 5;  // in which the ways take turns, so that a disturbance meets all of them

Json bench_batch(const lensbox::Detector& detector, const BenchOptions& options, int64_t batch) {
  const c10::Device device = device_of(detector);
  const std::vector<BenchWay> ways = bench_ways(detector, batch);
  std::vector<std::vector<double>> latencies(ways.size());  // milliseconds
  std::vector<double> images_per_second(ways.size());
  for (const BenchWay& way : ways) {
    for (int call = 0; call < kWarmUpCalls; ++call) {
      way.call();
    }
    sample_latencies(way, device, kWarmUpSeconds);
  }
  for (int round = 0; round < kRounds; ++round) {
    for (size_t i = 0; i < ways.size(); ++i) {
      const auto sampled = sample_latencies(ways[i], device, options.seconds / kRounds);
      std::ranges::copy(sampled, std::back_inserter(latencies[i]));
      const double calls = kSecondsBetweenWaits * 1e3 / std::ranges::min(sampled);
      images_per_second[i] += static_cast<double>(batch) / kRounds *
                              calls_per_second(ways[i], device, options.seconds / kRounds, options.callers,
                                               static_cast<size_t>(std::clamp(calls, 1.0, 100.0)));
    }
  }

  Json result = {{"batch", batch}};
  for (size_t i = 0; i < ways.size(); ++i) {
    const auto percentiles =
        at::quantile(at::tensor(latencies[i]), at::tensor({0.5, 0.9, 0.99}, at::kDouble));
    result[ways[i].name] = {
        {"calls", latencies[i].size()},
        {"p50_ms", percentiles[0].item<double>()},
        {"p90_ms", percentiles[1].item<double>()},
        {"p99_ms", percentiles[2].item<double>()},
        {"images_per_s", images_per_second[i]},
    };
  }
  return result;
}

}  // namespace

void run_bench(const ModelOptions& model, const BenchOptions& options) {
  lensbox::Detector detector = lensbox::Detector::load(model.artifact, model.load);
  Json document = {
      {"device", device_of(detector).str()}, {"threads", at::get_num_threads()},
      {"libtorch", TORCH_VERSION},           {"capture", options.capture && device_of(detector).is_cuda()},
      {"callers", options.callers},          {"batches", Json::array()},
  };
  for (const int64_t batch : options.batch_sizes) {
    if (options.capture) detector.capture({&batch, 1});
    document["batches"].push_back(bench_batch(detector, options, batch));
  }
  print_line(document);
}
