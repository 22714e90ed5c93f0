#include <ATen/ATen.h>
#include <lensbox/error.h>

#include <limits>

#include "helpers.h"
#include "small_detectors.h"
#include "tensors/tensor_steps.h"

namespace {

using lensbox::Photo;

Photo good_photo() {
  return Photo::of(at::zeros({3, 20, 30}, at::kByte));
}

TEST(Prepare, RefusesInvalidPhotos) {
  const auto refused = [](auto change, std::initializer_list<const char*> parts) {
    Photo photo = good_photo();
    change(photo);
    expect_error<lensbox::InputError>([&] { prepare(scripted(""), c10::kCPU, {good_photo(), photo}); },
                                      parts);
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

TEST(Fetch, CopiesNumbersAndTheUsedSlotsOfExtras) {
  const at::Tensor boxes = at::arange(24, at::kFloat).view({2, 3, 4});
  const at::Tensor scores = at::arange(6, at::kDouble).view({3, 2}).t();
  const at::Tensor extra = at::arange(30, at::kFloat).view({2, 3, 5});
  const auto found = lensbox::fetch("model.pt", {boxes, scores, at::tensor({1, 2}, at::kInt), {}, {extra}});
  EXPECT_EQ(std::get<std::vector<float>>(found.boxes.values).at(23), 23);
  EXPECT_EQ(std::get<std::vector<float>>(found.scores.values), (std::vector<float>{0, 2, 4, 1, 3, 5}));
  EXPECT_EQ(std::get<std::vector<int64_t>>(found.counts.values), (std::vector<int64_t>{1, 2}));
  EXPECT_TRUE(found.labels.sizes.empty());
  EXPECT_EQ(found.extras.at(0).sizes, (std::vector<int64_t>{2, 2, 5}));
  EXPECT_EQ(std::get<std::vector<float>>(found.extras[0].values).at(10), 15);
}

TEST(Fetch, RefusesInvalidCounts) {
  expect_error<lensbox::ArtifactError>(
      [&] { lensbox::fetch("model.pt", {at::zeros({1, 3, 4}), at::zeros({1, 3}), at::tensor({4})}); },
      {"model.pt", "counts of 0 to 3, got 4"});
}

// --- the copies between devices ---

TEST(CopyTo, UnpackReturnsThePackedTensors) {
  const at::Tensor interleaved = at::arange(60, at::kByte).view({4, 5, 3}).permute({2, 0, 1});
  const std::vector<at::Tensor> tensors{interleaved, at::arange(7, at::kByte),
                                        interleaved.slice(2, 0, 5, 2),  // with gaps
                                        at::arange(12, at::kFloat).view({2, 6})};
  const at::Tensor buffer = lensbox::pack(tensors, /*pinned=*/false);
  EXPECT_EQ(buffer.numel() % 256, 0);
  const auto views = lensbox::unpack(buffer, tensors);
  ASSERT_EQ(views.size(), 4);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_TRUE(at::equal(views[i], tensors[i])) << i;
    EXPECT_EQ(views[i].scalar_type(), tensors[i].scalar_type());
    EXPECT_TRUE(views[i].is_alias_of(buffer));
  }
  EXPECT_EQ(views[0].strides(), interleaved.strides());
  EXPECT_TRUE(views[2].is_contiguous());
}

#if LENSBOX_TORCH_HAS_CUDA
TEST(CopyToCpu, WaitsForAGpu) {
  if (!at::hasCUDA()) GTEST_SKIP() << "needs a GPU";
  const at::Tensor expected = at::full({2048, 2048}, 2048.0f);
  const at::Tensor ones = at::ones({2048, 2048}, at::kCUDA);
  at::Tensor product = at::zeros({2048, 2048}, at::kCUDA);
  lensbox::copy_to_cpu({product});  // torch keeps the pinned memory, which takes long to allocate
  for (int i = 0; i < 200; ++i) {
    at::mm_out(product, ones, ones);  // is still being computed when the copy is asked for
  }
  const at::Tensor copy = lensbox::copy_to_cpu({product})[0];
  EXPECT_TRUE(at::equal(copy, expected));
  EXPECT_TRUE(copy.is_pinned());
}
#endif

TEST(CopyToCpu, KeepsNumbersAndShapesOfEveryKind) {
  const std::vector<at::Tensor> tensors{
      at::arange(3, at::kByte), at::arange(6, at::kLong).view({2, 3}) * (int64_t{1} << 40),
      at::arange(5, at::kFloat) / 3, at::arange(12, at::kLong).view({3, 4}).narrow(1, 1, 2),
      at::empty({2, 0, 4})};
  const std::vector<at::Tensor> copies = lensbox::copy_to_cpu(tensors);
  ASSERT_EQ(copies.size(), tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i) {
    EXPECT_TRUE(at::equal(copies[i], tensors[i])) << i;
    EXPECT_EQ(copies[i].scalar_type(), tensors[i].scalar_type());
    EXPECT_TRUE(copies[i].is_contiguous());
  }
  EXPECT_TRUE(lensbox::copy_to_cpu({}).empty());
  EXPECT_TRUE(lensbox::copy_to(c10::kCPU, tensors)[0].is_same(tensors[0]));
}

}  // namespace
