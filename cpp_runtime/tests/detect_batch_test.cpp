#include <ATen/ATen.h>
#include <lensbox/error.h>

#include <limits>

#include "detect/steps.h"
#include "helpers.h"
#include "model/methods.h"

namespace {

using lensbox::Photo;
using lensbox::ScriptModule;

ScriptModule echo() {
  torch::jit::Module module("Detector");
  module.define(
      "def preprocess(self, images: List[Tensor], windows: Optional[Tensor]):\n"
      "  assert windows is not None\n"
      "  return images[0].new_zeros([len(images), 1, 2, 2]), windows\n");
  return {"model.pt", module};
}

Photo good_photo() {
  return Photo::of(at::zeros({3, 20, 30}, at::kByte));
}

TEST(Prepare, PassesWindowsAndSizes) {
  Photo part = good_photo();
  part.width = 119;
  part.height = 80;
  part.window = {-1, 0, 119, 80};
  const auto prepared = prepare(echo(), c10::kCPU, {good_photo(), part});
  EXPECT_EQ(prepared.canvases.size(0), 2);
  EXPECT_TRUE(
      at::equal(prepared.geometry,
                at::tensor({0, 0, 30, 20, 30, 20, -1, 0, 119, 80, 119, 80}, at::kFloat).view({2, 6})));
}

TEST(Prepare, RefusesInvalidPhotos) {
  const auto refused = [](auto change, std::initializer_list<const char*> parts) {
    Photo photo = good_photo();
    change(photo);
    expect_error<lensbox::InputError>([&] { prepare(echo(), c10::kCPU, {good_photo(), photo}); }, parts);
  };
  refused([](Photo& photo) { photo.pixels = at::zeros({3, 20, 30}); },
          {"photo 1: pixels must be uint8", "got Float [3, 20, 30]"});
  refused([](Photo& photo) { photo.pixels = at::zeros({2, 20, 30}, at::kByte); }, {"Byte [2, 20, 30]"});
  refused([](Photo& photo) { photo.pixels = at::zeros({3, 0, 30}, at::kByte); }, {"[3, 0, 30]"});
  refused([](Photo& photo) { photo.pixels = at::zeros({20, 30}, at::kByte); }, {"[20, 30]"});
  refused([](Photo& photo) { photo.width = 0; }, {"width and height must be at least 1, got 0 x 20"});
  refused([](Photo& photo) { photo.window[2] = photo.window[0]; }, {"window must be", "got 0, 0, 0, 20"});
  refused([](Photo& photo) { photo.window[1] = std::numeric_limits<float>::quiet_NaN(); }, {"window", "nan"});
  expect_error<lensbox::InputError>([] { Photo::of(at::zeros({20, 30}, at::kByte)); },
                                    {"[C, H, W], got [20, 30]"});
}

TEST(Collect, ReturnsAsManyAsCounted) {
  const at::Tensor boxes = at::arange(2 * 3 * 4, at::kFloat).view({2, 3, 4});
  const at::Tensor scores = at::arange(6, at::kFloat).view({2, 3}) / 8;
  for (const auto type : {at::kInt, at::kLong}) {
    const auto found = collect(echo(), {boxes, scores, at::tensor({1, 2}, type)});
    ASSERT_EQ(found.size(), 2);
    ASSERT_EQ(found[0].size(), 1);
    ASSERT_EQ(found[1].size(), 2);
    EXPECT_EQ(found[0][0].box, (lensbox::Box{0, 1, 2, 3}));
    EXPECT_EQ(found[1][1].box, (lensbox::Box{16, 17, 18, 19}));
    EXPECT_EQ(found[1][1].score, 0.5F);
  }
  EXPECT_TRUE(
      collect(echo(), {boxes.narrow(1, 0, 0), scores.narrow(1, 0, 0), at::tensor({0, 0})})[1].empty());
}

TEST(Collect, RefusesInvalidCounts) {
  for (const int64_t count : {int64_t{-1}, int64_t{4}, int64_t{1} << 32}) {
    expect_error<lensbox::ArtifactError>(
        [&] { collect(echo(), {at::zeros({1, 3, 4}), at::zeros({1, 3}), at::tensor({count})}); },
        {"counts of 0 to 3, got", std::to_string(count).c_str()});
  }
}

TEST(Collect, RefusesLabelsWithoutAClass) {
  torch::jit::Module module("Detector");
  const ScriptModule two_classes{"model.pt", module, {2, {}}};
  for (const int64_t label : {int64_t{-1}, int64_t{2}, int64_t{1} << 32}) {
    const at::Tensor labels = at::tensor({int64_t{7}, int64_t{1}, label}, at::kLong).view({1, 3}).flip({1});
    expect_error<lensbox::ArtifactError>(
        [&] {
          collect(two_classes, {at::zeros({1, 3, 4}), at::ones({1, 3}), at::tensor({2}, at::kInt), labels});
        },
        {"model.pt", "labels from 0 to 1, as there are 2 classes, got", std::to_string(label).c_str()});
  }
}

}  // namespace
