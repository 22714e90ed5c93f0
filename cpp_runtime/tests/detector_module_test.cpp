#include <ATen/ATen.h>
#include <lensbox/error.h>
#include <torch/csrc/jit/runtime/graph_executor.h>
#include <torch/csrc/jit/runtime/print_handler.h>

#include "helpers.h"
#include "small_detectors.h"

namespace {

using lensbox::DetectorModule;

TEST(DetectorModuleCalls, DoNotProfileOrCompile) {
  static int calls, optimized;  // of restore, and with an executor that may profile and compile
  calls = optimized = 0;
  const auto before = torch::jit::getPrintHandler();
  torch::jit::setPrintHandler([](const std::string& /*text*/) {
    ++calls;
    optimized += torch::jit::getGraphExecutorOptimize();
  });
  const DetectorModule detector = scripted(
      "def restore(self, a, b):\n  print(1)\n  return a\n"
      "def loss(self, a, b):\n  return a + b\n");
  ASSERT_TRUE(torch::jit::getGraphExecutorOptimize());
  // A profiling executor would compile in the second call, and again for another size.
  for (const int64_t size : {1, 1, 2, 3}) {
    detector.restore({at::ones({size}), {}, {}}, at::ones({size}));
  }
  torch::jit::setPrintHandler(before);
  EXPECT_EQ(std::pair(calls, optimized), std::pair(4, 0));
  EXPECT_TRUE(torch::jit::getGraphExecutorOptimize());
  expect_error<lensbox::ArtifactError>([&] { detector.loss(at::ones({2}), at::ones({3})); },
                                       {"model.pt", "method loss failed", "must match the size"});
  EXPECT_TRUE(torch::jit::getGraphExecutorOptimize());
}

TEST(DetectorModuleCalls, RefuseWrongResults) {
  const at::Tensor boxes = at::zeros({2, 5, 4});
  const at::Tensor geometry = at::ones({2, 6});
  const DetectorModule detector = scripted(
      "def preprocess(self, images: List[Tensor], windows: Optional[Tensor]):\n"
      "  return images[0], images[0]\n"
      "def detect(self, canvases, score: float, iou: float):\n"
      "  return {'boxes': canvases, 'scores': canvases, 'counts': canvases, 'eyes': canvases}\n"
      "def restore(self, boxes, geometry):\n"
      "  return boxes[..., :2]\n"
      "def restore_points(self, points, geometry):\n"
      "  return geometry\n",
      {0, {{"eyes", {2, 2}, lensbox::ExtraKind::kPoints}}});
  expect_error<lensbox::ArtifactError>([&] { detector.preprocess({boxes}, geometry); },
                                       {"canvases [B, C, H, W]", "[2, 5, 4] and [2, 5, 4] for 1"});
  expect_error<lensbox::ArtifactError>([&] { detector.detect(boxes, 0.5, 0.5); },
                                       {"boxes [B, K, 4]", "[2, 5, 4], [2, 5, 4] and [2, 5, 4] for 2"});
  expect_error<lensbox::ArtifactError>([&] { detector.restore({boxes, {}, {}}, geometry); },
                                       {"restore must return [2, 5, 4], got Float [2, 5, 2]"});
  lensbox::Found found{boxes.narrow(2, 0, 2), {}, {}};
  found.extras = {boxes};
  expect_error<lensbox::ArtifactError>([&] { detector.restore(found, geometry); },
                                       {"restore_points must return Float [2, 5, 4], got Float [2, 6]"});
  expect_error<lensbox::ArtifactError>([&] { detector.loss(boxes, boxes); }, {"has no method loss"});
}

TEST(DetectResults, RefusesWrongResults) {
  const lensbox::Outputs outputs{
      2, {{"eyes", {2, 2}, lensbox::ExtraKind::kPoints}, {"age", {}, lensbox::ExtraKind::kValues}}};
  // From two canvases of 30 numbers each, results with three slots.
  const std::string start =
      "return {'boxes': x[:, :12].view([2, 3, 4]), 'scores': x[:, :3], 'counts': x[:, 0]";
  const std::string labels = ", 'labels': torch._cast_Long(x[:, 3:6])";
  const std::string eyes = ", 'eyes': x[:, 6:18].reshape([2, 3, 2, 2])";
  const std::string age = ", 'age': torch._cast_Long(x[:, 18:21])";
  const std::pair<std::string, const char*> cases[] = {
      {start + eyes + age + "}", "must return the tensor labels, got none"},
      {start + labels + age + "}", "must return the tensor eyes, got none"},
      {start + ", 'labels': x[:, 3:6]" + eyes + age + "}", "labels as Long [2, 3], got Float [2, 3]"},
      {start + ", 'labels': torch._cast_Long(x[:, :2])" + eyes + age + "}", "got Long [2, 2]"},
      {start + labels + ", 'eyes': x[:, 6:18]" + age + "}", "eyes as Float [2, 3, 2, 2], got Float [2, 12]"},
      {start + labels + ", 'eyes': torch._cast_Long(x[:, 6:18]).view([2, 3, 2, 2])" + age + "}",
       "eyes as Float [2, 3, 2, 2], got Long"},
      {start + labels + eyes + ", 'age': torch._cast_Int(x[:, :3])}",
       "age as Float or Long [2, 3], got Int [2, 3]"},
      {"return x, x, x", "must return tensors by name, got Tuple"},
      {"return {'boxes': 1, 'scores': 1, 'counts': 1, 'labels': 1, 'eyes': 1, 'age': 1}",
       "must return tensors, got Int"},
  };
  for (const auto& [code, reason] : cases) {
    const DetectorModule detector =
        scripted("def detect(self, x, score: float, iou: float):\n  " + code + "\n", outputs);
    expect_error<lensbox::ArtifactError>([&] { detector.detect(at::zeros({2, 30}), 0.5, 0.5); },
                                         {"model.pt", "method detect", reason});
  }
}

TEST(LossValue, MustBeOneNumber) {
  const DetectorModule detector = scripted("def loss(self, a, b):\n  return (a + b).detach()\n");
  const auto loss = [&](at::IntArrayRef shape, bool with_gradient = false) {
    return detector.loss(at::ones(shape).requires_grad_(with_gradient), at::ones(shape)).first;
  };
  EXPECT_EQ(loss({}), 2);
  EXPECT_EQ(loss({1, 1}), 2);
  expect_error<lensbox::ArtifactError>([&] { loss({3}); },
                                       {"model.pt", "method loss must return one number, got Float [3]"});
  expect_error<lensbox::ArtifactError>([&] { loss({0}); }, {"got Float [0]"});
  expect_error<lensbox::ArtifactError>([&] { loss({1, 1}, true); },
                                       {"method loss must return one number that has a gradient"});
}

}  // namespace
