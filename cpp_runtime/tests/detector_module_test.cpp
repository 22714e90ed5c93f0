#include "detector_module.h"

#include <ATen/ATen.h>
#include <lensbox/error.h>
#include <torch/csrc/jit/frontend/resolver.h>
#include <torch/csrc/jit/runtime/graph_executor.h>
#include <torch/library.h>

#include "expect_error.h"

namespace {

using lensbox::DetectorModule;

// 1 while TorchScript's executor is free to watch and compile.
at::Tensor optimizes(const at::Tensor& like) {
  return at::full_like(like, torch::jit::getGraphExecutorOptimize() ? 1 : 0);
}

TORCH_LIBRARY_FRAGMENT(lensbox_test, library) {
  library.def("optimizes(Tensor like) -> Tensor", &optimizes);
}

// TorchScript's own finds only torch.
struct TestOps : torch::jit::NativeResolver {
  std::shared_ptr<torch::jit::SugaredValue> resolveValue(const std::string& name,
                                                         torch::jit::GraphFunction& function,
                                                         const torch::jit::SourceRange& place) override {
    if (name == "lensbox_test") return std::make_shared<torch::jit::BuiltinModule>(name);
    return NativeResolver::resolveValue(name, function, place);
  }
};

DetectorModule with_method(const std::string& code) {
  torch::jit::Module module("Detector");
  module.define(code, std::make_shared<TestOps>());
  return {"model.pt", module};
}

TEST(DetectorModuleCalls, DoNotWatchAndCompile) {
  const DetectorModule detector = with_method("def loss(self, a, b):\n  return lensbox_test.optimizes(a)\n");
  ASSERT_TRUE(torch::jit::getGraphExecutorOptimize());
  // A watching executor would compile in the second call, and again for another size.
  for (const int64_t size : {1, 1, 2, 3}) {
    EXPECT_EQ(detector.loss(at::ones({size}), at::ones({size})).sum().item<int>(), 0);
  }
  EXPECT_TRUE(torch::jit::getGraphExecutorOptimize());
}

TEST(DetectorModuleCalls, TheSwitchIsPutBackAfterAFailure) {
  const DetectorModule detector = with_method("def loss(self, a, b):\n  return a + b\n");
  expect_error<lensbox::ArtifactError>([&] { detector.loss(at::ones({2}), at::ones({3})); },
                                       {"model.pt", "method loss failed", "must match the size"});
  EXPECT_TRUE(torch::jit::getGraphExecutorOptimize());
}

TEST(DetectorModuleCalls, ResultsAreChecked) {
  const at::Tensor boxes = at::zeros({2, 5, 4});
  const at::Tensor geometry = at::ones({2, 6});
  const DetectorModule detector = with_method(
      "def preprocess(self, images: List[Tensor], windows: Optional[Tensor]):\n"
      "  return images[0], images[0]\n"
      "def detect(self, canvases, score: float, iou: float):\n"
      "  return canvases, canvases, canvases\n"
      "def restore(self, boxes, geometry):\n"
      "  return boxes[..., :2]\n");
  expect_error<lensbox::ArtifactError>([&] { detector.preprocess({boxes}, geometry); },
                                       {"canvases [B, C, H, W]", "[2, 5, 4] and [2, 5, 4] for 1"});
  expect_error<lensbox::ArtifactError>([&] { detector.detect(boxes, 0.5, 0.5); },
                                       {"boxes [B, K, 4]", "[2, 5, 4], [2, 5, 4] and [2, 5, 4] for 2"});
  expect_error<lensbox::ArtifactError>([&] { detector.restore(boxes, geometry); },
                                       {"must keep the shape [2, 5, 4], got [2, 5, 2]"});
  expect_error<lensbox::ArtifactError>([&] { detector.restore_each(boxes, geometry); },
                                       {"must keep the shape [5, 4], got [5, 2]"});
  expect_error<lensbox::ArtifactError>([&] { detector.loss(boxes, boxes); }, {"has no method loss"});
}

TEST(DetectorModuleCalls, ImageByImageGivesABatch) {
  const DetectorModule detector = with_method(
      "def preprocess(self, image):\n"
      "  return image + 1, torch.full([6], image[0, 0, 0])\n"
      "def restore(self, boxes, geometry):\n"
      "  return boxes * geometry[0]\n");
  const auto prepared =
      detector.preprocess_each({at::full({1, 4, 4}, 2, at::kFloat), at::full({1, 4, 4}, 3, at::kFloat)});
  EXPECT_TRUE(at::equal(prepared.canvases[1], at::full({1, 4, 4}, 4, at::kFloat)));
  const at::Tensor boxes = detector.restore_each(at::ones({2, 5, 4}), prepared.geometry);
  EXPECT_TRUE(at::equal(boxes[0], at::full({5, 4}, 2.0F)));
  EXPECT_TRUE(at::equal(boxes[1], at::full({5, 4}, 3.0F)));
  expect_error<lensbox::ArtifactError>(
      [&] { detector.preprocess_each({at::ones({1, 4, 4}), at::ones({1, 5, 4})}); }, {"of one size"});
}

}  // namespace
