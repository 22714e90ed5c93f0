#include "model/gpu_float32.h"

#include <ATen/Context.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

namespace {

using lensbox::GpuFloat32;
using lensbox::GpuFloat32Scope;

bool convolutions_round() {
  return at::globalContext().allowTF32CuDNN(at::Float32Op::CONV);
}

bool products_round() {
  const auto precision =
      at::globalContext().float32Precision(at::Float32Backend::CUDA, at::Float32Op::MATMUL);
  return precision == at::Float32Precision::TF32;
}

// These switches exist without a GPU, so no GPU is needed. Each test restores torch's defaults.
class GpuFloat32Scopes : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    context_.setAllowTF32CuDNN(GetParam());
    context_.setAllowTF32CuBLAS(GetParam());
  }

  void TearDown() override {
    context_.setAllowTF32CuDNN(true);
    context_.setAllowTF32CuBLAS(false);
  }

  // Expect the precision of the process, in both of torch's interfaces.
  void expect_untouched() {
    EXPECT_EQ(convolutions_round(), GetParam());
    EXPECT_EQ(products_round(), GetParam());
    EXPECT_EQ(context_.allowTF32CuDNN(), GetParam());
    EXPECT_EQ(context_.allowTF32CuBLAS(), GetParam());
  }

  at::Context& context_ = at::globalContext();
};

TEST_P(GpuFloat32Scopes, SetAndRestoreTheSwitches) {
  for (const bool tf32 : {false, true, false}) {
    {
      const GpuFloat32Scope scope(tf32 ? GpuFloat32::kTf32 : GpuFloat32::kFull);
      EXPECT_EQ(convolutions_round(), tf32);
      EXPECT_EQ(products_round(), tf32);
      EXPECT_EQ(context_.allowTF32CuDNN(), tf32);  // throws where torch's interfaces disagree
      EXPECT_EQ(context_.allowTF32CuBLAS(), tf32);
    }
    expect_untouched();
  }
}

TEST_P(GpuFloat32Scopes, WorkAfterTheNewerInterfaceWasUsed) {
  context_.setFloat32Precision(at::Float32Backend::CUDA, at::Float32Op::CONV,
                               GetParam() ? at::Float32Precision::IEEE : at::Float32Precision::TF32);
  {
    const GpuFloat32Scope scope(GpuFloat32::kTf32);
    EXPECT_TRUE(convolutions_round());
  }
  EXPECT_EQ(convolutions_round(), !GetParam());
}

TEST_P(GpuFloat32Scopes, RestoreTheMediumPrecisionOfProducts) {
  context_.setFloat32MatmulPrecision("medium");
  { const GpuFloat32Scope scope(GpuFloat32::kFull); }
  EXPECT_EQ(context_.float32MatmulPrecision(), at::Float32MatmulPrecision::MEDIUM);
  context_.setFloat32MatmulPrecision("highest");
}

TEST_P(GpuFloat32Scopes, OfOneKindRunTogether) {
  const GpuFloat32Scope scope(GpuFloat32::kFull);
  std::jthread([] { const GpuFloat32Scope other(GpuFloat32::kFull); }).join();
  EXPECT_FALSE(convolutions_round());
}

TEST_P(GpuFloat32Scopes, OfBothKindsTakeTurns) {
  std::atomic<int> wrong = 0;
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 6; ++i) {
      threads.emplace_back([&wrong, tf32 = i % 2 == 1] {
        for (int call = 0; call < 100; ++call) {
          const GpuFloat32Scope scope(tf32 ? GpuFloat32::kTf32 : GpuFloat32::kFull);
          std::this_thread::sleep_for(std::chrono::microseconds(20));
          wrong += convolutions_round() != tf32;
        }
      });
    }
  }
  EXPECT_EQ(wrong, 0);
  expect_untouched();
}

INSTANTIATE_TEST_SUITE_P(ProcessDefaults, GpuFloat32Scopes, testing::Bool());

}  // namespace
