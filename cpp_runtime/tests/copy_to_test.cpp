#include "model/copy_to.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace {

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
TEST(CopyTo, KeepsNumbersAndStridesOnAGpu) {
  if (!at::hasCUDA()) GTEST_SKIP() << "needs a GPU";
  const at::Tensor interleaved = at::arange(60, at::kByte).view({4, 5, 3}).permute({2, 0, 1});
  const at::Tensor there = at::ones({2}).to(c10::kCUDA);
  const auto copies =
      lensbox::copy_to(c10::Device(c10::kCUDA, 0), {interleaved, there, at::arange(7, at::kFloat)});
  EXPECT_TRUE(at::equal(copies[0].cpu(), interleaved));
  EXPECT_EQ(copies[0].strides(), interleaved.strides());
  EXPECT_TRUE(copies[1].is_same(there));
  EXPECT_TRUE(at::equal(copies[2].cpu(), at::arange(7, at::kFloat)));
}

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
