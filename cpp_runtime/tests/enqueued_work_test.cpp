#include "model/enqueued_work.h"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/jit/api/module.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <vector>

#include "helpers.h"
#include "model/detector_module.h"

namespace {

using lensbox::DetectorModule;
using lensbox::Found;

constexpr int64_t kSlots = 4096;

at::TensorOptions on_gpu(at::ScalarType dtype) {
  return at::TensorOptions().dtype(dtype).device(c10::kCUDA, 0);
}

// A detector whose boxes are its weight, and whose scores are the canvas.
std::unique_ptr<DetectorModule> weight_detector(const at::Tensor& weight) {
  torch::jit::Module module("Detector");
  module.register_buffer("weight", weight);
  module.define(
      "def detect(self, canvases, score: float, iou: float):\n"
      "  boxes = (self.weight.reshape([1, -1, 4]) + score).expand([canvases.size(0), -1, -1])\n"
      "  scores = torch._cast_Float(canvases.flatten(1))\n"
      "  return {'boxes': boxes, 'scores': scores, 'counts': torch._cast_Int(scores[:, 0])}\n");
  return std::make_unique<DetectorModule>("model.pt", lensbox::Outputs{},
                                          lensbox::script_methods(module, {}));
}

class WorkOnAGpu : public testing::Test {
 protected:
  void SetUp() override {
    if (!at::globalContext().hasCUDA()) GTEST_SKIP() << "needs a GPU";
    factor_ = at::ones({8192, 8192}, on_gpu(at::kFloat));
    at::Tensor weight = at::ones({4 * kSlots}, on_gpu(at::kFloat));
    place_ = weight.const_data_ptr();
    detector_ = weight_detector(weight);
    late_ = next_stream();
    const c10::StreamGuard guard(*late_);
    keep_busy();  // cuBLAS takes its memory in the first call
    detector_->detect(canvases(), 0.5, 0.25);
    synchronize();
  }

  // Return torch's streams of the GPU in turn.
  static c10::Stream next_stream() {
    return c10::impl::VirtualGuardImpl(c10::kCUDA).getStreamFromGlobalPool(c10::Device(c10::kCUDA, 0));
  }

  // Give the current stream about a second of work.
  void keep_busy() const {
    for (int i = 0; i < 40; ++i) {
      at::mm(factor_, factor_);
    }
  }

  // Overwrite whatever memory the current stream may take that is as large as `like`. Return its addresses.
  std::vector<const void*> overwrite(const at::Tensor& like) {
    std::vector<const void*> places;
    for (int i = 0; i < 8; ++i) {
      taken_.push_back(at::full_like(like, 7));
      places.push_back(taken_.back().const_data_ptr());
    }
    return places;
  }

  static at::Tensor canvases() { return at::ones({1, 1, 64, 64}, on_gpu(at::kByte)); }

  void synchronize() const {
    c10::impl::VirtualGuardImpl(c10::kCUDA).getDefaultStream(c10::Device(c10::kCUDA, 0)).synchronize();
    late_->synchronize();
  }

  const c10::InferenceMode inference_mode_;
  std::optional<c10::Stream> late_;
  at::Tensor factor_;
  const void* place_ = nullptr;  // of the weight
  std::unique_ptr<DetectorModule> detector_;
  std::vector<at::Tensor> taken_;
};

TEST_F(WorkOnAGpu, ReadsTheWeightsOfADestroyedDetector) {
  const at::Tensor images = canvases();
  synchronize();
  Found found;
  {
    const c10::StreamGuard guard(*late_);
    keep_busy();
    found = detector_->detect(images, 0.5, 0.25);
  }
  const at::Tensor like = at::empty({4 * kSlots}, on_gpu(at::kFloat));
  detector_.reset();
  const auto places = overwrite(like);
  EXPECT_NE(std::ranges::find(places, place_), places.end()) << "other memory was taken: this shows nothing";
  synchronize();
  EXPECT_EQ(found.boxes.min().item<float>(), 1.5F);
  EXPECT_EQ(found.boxes.max().item<float>(), 1.5F);
}

}  // namespace
