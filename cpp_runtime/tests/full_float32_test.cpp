#include "full_float32.h"

#include <ATen/Context.h>
#include <gtest/gtest.h>

namespace {

// These switches are not a GPU's, so they can be tested without one. Each test leaves torch's defaults.
class FullFloat32 : public testing::Test {
 protected:
  void SetUp() override {
    context_.setAllowTF32CuDNN(true);
    context_.setAllowTF32CuBLAS(true);
  }

  void TearDown() override {
    context_.setAllowTF32CuDNN(true);
    context_.setAllowTF32CuBLAS(false);
  }

  at::Context& context_ = at::globalContext();
};

TEST_F(FullFloat32, TurnsTf32OffForAGpu) {
  lensbox::use_full_float32(c10::Device(c10::kCUDA, 0));
  EXPECT_FALSE(context_.allowTF32CuDNN());
  EXPECT_FALSE(context_.allowTF32CuDNN(at::Float32Op::CONV));
  EXPECT_FALSE(context_.allowTF32CuBLAS());
}

TEST_F(FullFloat32, LeavesTheSwitchesAloneForTheCpu) {
  lensbox::use_full_float32(c10::kCPU);
  EXPECT_TRUE(context_.allowTF32CuDNN());
  EXPECT_TRUE(context_.allowTF32CuBLAS());
}

}  // namespace
