#include "model/detector_module.h"

#include <ATen/ATen.h>
#include <lensbox/error.h>
#include <torch/csrc/jit/frontend/resolver.h>
#include <torch/csrc/jit/runtime/graph_executor.h>
#include <torch/library.h>

#include "helpers.h"

namespace {

using lensbox::DetectorModule;

// Return 1 if TorchScript's executor may profile and compile.
at::Tensor optimizes(const at::Tensor& like) {
  return at::full_like(like, torch::jit::getGraphExecutorOptimize() ? 1 : 0);
}

TORCH_LIBRARY_FRAGMENT(lensbox_test, library) {
  library.def("optimizes(Tensor like) -> Tensor", &optimizes);
}

// TorchScript's own resolver finds only torch.
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
  return {"model.pt", std::make_shared<lensbox::ScriptMethods>(module)};
}

TEST(DetectorModuleCalls, DoNotProfileOrCompile) {
  const DetectorModule detector = with_method("def loss(self, a, b):\n  return lensbox_test.optimizes(a)\n");
  ASSERT_TRUE(torch::jit::getGraphExecutorOptimize());
  // A profiling executor would compile in the second call, and again for another size.
  for (const int64_t size : {1, 1, 2, 3}) {
    EXPECT_EQ(detector.loss(at::ones({size}), at::ones({size})).sum().item<int>(), 0);
  }
  EXPECT_TRUE(torch::jit::getGraphExecutorOptimize());
}

TEST(DetectorModuleCalls, RestoreTheSwitchAfterAFailure) {
  const DetectorModule detector = with_method("def loss(self, a, b):\n  return a + b\n");
  expect_error<lensbox::ArtifactError>([&] { detector.loss(at::ones({2}), at::ones({3})); },
                                       {"model.pt", "method loss failed", "must match the size"});
  EXPECT_TRUE(torch::jit::getGraphExecutorOptimize());
}

TEST(DetectorModuleCalls, RefuseWrongResults) {
  const at::Tensor boxes = at::zeros({2, 5, 4});
  const at::Tensor geometry = at::ones({2, 6});
  const DetectorModule detector = with_method(
      "def preprocess(self, images: List[Tensor], windows: Optional[Tensor]):\n"
      "  return images[0], images[0]\n"
      "def detect(self, canvases, score: float, iou: float):\n"
      "  return canvases, canvases, canvases\n"
      "def restore(self, boxes, geometry):\n"
      "  return boxes[..., :2]\n"
      "def restore_points(self, points, geometry):\n"
      "  return geometry\n");
  expect_error<lensbox::ArtifactError>([&] { detector.preprocess({boxes}, geometry); },
                                       {"canvases [B, C, H, W]", "[2, 5, 4] and [2, 5, 4] for 1"});
  expect_error<lensbox::ArtifactError>([&] { detector.detect(boxes, 0.5, 0.5); },
                                       {"boxes [B, K, 4]", "[2, 5, 4], [2, 5, 4] and [2, 5, 4] for 2"});
  expect_error<lensbox::ArtifactError>([&] { detector.restore(boxes, geometry); },
                                       {"must keep the shape [2, 5, 4], got [2, 5, 2]"});
  expect_error<lensbox::ArtifactError>([&] { detector.restore_points(boxes, geometry); },
                                       {"restore_points must return float32 [2, 5, 4], got Float [2, 6]"});
  expect_error<lensbox::ArtifactError>([&] { detector.loss(boxes, boxes); }, {"has no method loss"});
}

// Two canvases of 30 numbers each, which hold the results, with three slots.
DetectorModule with_names(const std::string& labels, const std::string& eyes, const std::string& age) {
  torch::jit::Module module("Detector");
  module.define("def detect_named(self, canvases, score: float, iou: float):\n  x = canvases\n  return {" +
                labels + eyes + age +
                "'boxes': x[:, :12].view([2, 3, 4]), 'scores': x[:, :3], 'counts': x[:, 0]}\n");
  return {"model.pt",
          std::make_shared<lensbox::ScriptMethods>(module),
          {2, {{"eyes", {2, 2}, lensbox::ExtraKind::kPoints}, {"age", {}, lensbox::ExtraKind::kValues}}}};
}

constexpr const char* kLabels = "'labels': torch._cast_Long(x[:, 3:6]), ";
constexpr const char* kEyes = "'eyes': x[:, 6:18].reshape([2, 3, 2, 2]), ";
constexpr const char* kAge = "'age': torch._cast_Long(x[:, 18:21]), ";

TEST(DetectNamed, RefusesWrongResults) {
  const auto refused = [](const DetectorModule& detector, std::initializer_list<const char*> parts) {
    expect_error<lensbox::ArtifactError>([&] { detector.detect(at::zeros({2, 30}), 0.5, 0.5); }, parts);
  };
  refused(with_names("", kEyes, kAge), {"model.pt", "detect_named must return the tensor labels, got none"});
  refused(with_names(kLabels, "", kAge), {"must return the tensor eyes, got none"});
  refused(with_names("'labels': x[:, 3:6], ", kEyes, kAge), {"labels as Long [2, 3], got Float [2, 3]"});
  refused(with_names("'labels': torch._cast_Long(x[:, :2]), ", kEyes, kAge), {"labels", "got Long [2, 2]"});
  refused(with_names(kLabels, "'eyes': x[:, 6:18], ", kAge),
          {"eyes as Float [2, 3, 2, 2], got Float [2, 12]"});
  refused(with_names(kLabels, "'eyes': torch._cast_Long(x[:, 6:18]).view([2, 3, 2, 2]), ", kAge),
          {"eyes as Float [2, 3, 2, 2], got Long"});
  refused(with_names(kLabels, kEyes, "'age': torch._cast_Int(x[:, :3]), "),
          {"age as Float or Long [2, 3], got Int [2, 3]"});

  const auto with_code = [](const std::string& code) {
    torch::jit::Module module("Detector");
    module.define(code);
    return DetectorModule("model.pt", std::make_shared<lensbox::ScriptMethods>(module), {1, {}});
  };
  refused(with_code("def detect(self, x, score: float, iou: float):\n  return x, x, x\n"),
          {"has no method detect_named"});
  refused(with_code("def detect_named(self, x, score: float, iou: float):\n  return x, x, x\n"),
          {"detect_named must return tensors by name, got Tuple"});
  refused(with_code("def detect_named(self, x, score: float, iou: float):\n  return {'boxes': 1}\n"),
          {"must return the tensor boxes, got Int"});
}

TEST(LossValue, MustBeOneNumber) {
  const DetectorModule detector = with_method("def loss(self, a, b):\n  return a + b\n");
  const auto value = [&](at::IntArrayRef shape) {
    return detector.value_of(detector.loss(at::ones(shape), at::ones(shape)));
  };
  EXPECT_EQ(value({}), 2);
  EXPECT_EQ(value({1, 1}), 2);
  expect_error<lensbox::ArtifactError>([&] { value({3}); },
                                       {"model.pt", "method loss must return one number, got Float [3]"});
  expect_error<lensbox::ArtifactError>([&] { value({0}); }, {"got Float [0]"});
  expect_error<lensbox::ArtifactError>([&] { detector.gradient(at::ones({}), at::ones({1, 4})); },
                                       {"method loss must return one number that has a gradient"});
}

}  // namespace
