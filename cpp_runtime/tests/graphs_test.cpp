#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <lensbox/error.h>

#include <atomic>
#include <thread>

#include "helpers.h"
#include "model/detector_module.h"
#include "small_detectors.h"

namespace {

using lensbox::Found;

#if LENSBOX_CUDA_GRAPHS

// A detector whose result depends on every pixel of a canvas and on nothing else.
lensbox::DetectorModule pixel_detector() {
  return scripted(
      "def detect(self, canvases, score: float, iou: float):\n"
      "  pixels = torch._cast_Float(canvases.flatten(1))\n"
      "  sums = torch.cumsum(pixels, 1)\n"
      "  return {'boxes': sums[:, :8].reshape([-1, 2, 4]) + score, 'scores': sums[:, -2:] * iou,\n"
      "          'counts': torch._cast_Int(sums[:, -1]), 'labels': torch._cast_Long(sums[:, 1:3]),\n"
      "          'eyes': sums[:, 3:7].reshape([-1, 2, 1, 2])}\n",
      {2, {{"eyes", {1, 2}, lensbox::ExtraKind::kPoints}}});
}

class GraphsOnAGpu : public testing::Test {
 protected:
  void SetUp() override {
    if (!at::globalContext().hasCUDA()) GTEST_SKIP() << "needs a GPU";
    graphs_ = record_graphs(detector_, canvases(1), {1, 4, 4}, 0.5, 0.25);
  }

  static at::Tensor canvases(int64_t batch) {
    return at::randint(0, 256, {batch, 1, 4, 4}, at::TensorOptions().dtype(at::kByte).device(c10::kCUDA));
  }

  // Return how many of `calls` with batches of changing sizes differ between graphs and plain calls.
  int differences(int calls) {
    const c10::InferenceMode inference_mode;
    int count = 0;
    for (int call = 0; call < calls; ++call) {
      const int64_t batch = 1 + call % 4;
      const at::Tensor images = canvases(batch);
      const Found found = graphs_(images, 0.5, 0.25).value();
      const Found expected = detector_.detect(images, 0.5, 0.25);
      count += !(at::equal(found.boxes, expected.boxes) && at::equal(found.scores, expected.scores) &&
                 at::equal(found.counts, expected.counts) && at::equal(found.labels, expected.labels) &&
                 at::equal(found.extras[0], expected.extras[0]));
    }
    return count;
  }

  lensbox::DetectorModule detector_ = pixel_detector();
  lensbox::DetectGraphs graphs_;
};

TEST_F(GraphsOnAGpu, RunOnlyTheBatchesThatWereRecorded) {
  EXPECT_FALSE(graphs_(canvases(5), 0.5, 0.25));
  EXPECT_FALSE(graphs_(canvases(1), 0.4, 0.25));
  EXPECT_FALSE(graphs_(canvases(1), 0.5, 0.3));
  EXPECT_FALSE(graphs_(canvases(1).narrow(2, 0, 3), 0.5, 0.25));
  EXPECT_FALSE(graphs_(canvases(1).to(at::kFloat), 0.5, 0.25));
  EXPECT_FALSE(graphs_(canvases(1).cpu(), 0.5, 0.25));
}

TEST_F(GraphsOnAGpu, AreThreadSafeOnSeveralStreams) {
  std::atomic<int> count = 0;
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&] {
        const c10::impl::VirtualGuardImpl gpu(c10::kCUDA);
        const c10::StreamGuard guard(gpu.getStreamFromGlobalPool(c10::Device(c10::kCUDA, 0)));
        count += differences(100);
      });
    }
  }
  EXPECT_EQ(count, 0);
}

#else

TEST(GraphsWithoutCuda, NameTheOption) {
  expect_error<lensbox::DeviceError>(
      [] { lensbox::record_graphs(scripted(""), at::zeros({1}), {1}, 0.5, 0.25); },
      {"not built into this program", "LENSBOX_CUDA_INCLUDE_DIR"});
}

#endif

}  // namespace
