#include "model/machine.h"

#include <ATen/Context.h>
#include <gtest/gtest.h>
#include <lensbox/error.h>
#include <torch/cuda.h>

#include <cstdlib>
#include <iostream>
#include <sstream>
#include <string>

#include "helpers.h"

namespace {

using lensbox::lacking_features;
using Names = std::vector<std::string>;

constexpr const char* kX86 =
    "processor\t: 0\nvendor_id\t: A\nflags\t\t: fpu sse2 avx avx2 fma\nbugs\t: avx9\n";
constexpr const char* kArm = "processor\t: 0\nFeatures\t: fp asimd sve\nCPU part\t: 0xd40\n";

TEST(LackingFeatures, ListsFeaturesMissingFromCpuinfo) {
  using Text = std::istringstream;
  EXPECT_EQ(lacking_features({"avx2", "fma"}, Text(kX86)), Names{});
  EXPECT_EQ(lacking_features({"avx512f", "avx2", "avx9"}, Text(kX86)), (Names{"avx512f", "avx9"}));
  EXPECT_EQ(lacking_features({"asimd", "sve2"}, Text(kArm)), Names{"sve2"});
  EXPECT_EQ(lacking_features({"avx"}, Text()), Names{"avx"});
}

TEST(Device, IsParsedAndChecked) {
  EXPECT_TRUE(lensbox::parse_device("cpu").is_cpu());
  EXPECT_EQ(lensbox::parse_device("auto").is_cuda(), torch::cuda::is_available());
  const std::string missing = "cuda:" + std::to_string(torch::cuda::device_count());
  expect_error<lensbox::DeviceError>([&] { lensbox::parse_device(missing); }, {"not available"});
  for (const char* name : {"", "gpu", "cuda:", "cuda:-1", "cuda:1x", "cuda:99999999999", "CUDA", "cpu:0"}) {
    expect_error<lensbox::DeviceError>([&] { lensbox::parse_device(name); },
                                       {"cpu, cuda, cuda:N or auto", name});
  }
}

// The linker must not have dropped libtorch_cuda, of which no symbol is used here.
TEST(Device, HasCudaIfTorchWasBuiltWithCuda) {
  EXPECT_EQ(at::globalContext().hasCUDART(), LENSBOX_TORCH_HAS_CUDA == 1);
}

bool rounds(at::Float32Op op) {
  return at::globalContext().float32Precision(at::Float32Backend::CUDA, op) == at::Float32Precision::TF32;
}

// Set one mode, and print why the other one is refused. The switches exist without a GPU.
[[noreturn]] void try_both_modes(bool tf32) {
  at::globalContext().setAllowTF32CuDNN(!tf32);
  at::globalContext().setAllowTF32CuBLAS(!tf32);
  lensbox::set_gpu_float32("first.pt", tf32);
  lensbox::set_gpu_float32("second.pt", tf32);
  try {
    lensbox::set_gpu_float32("third.pt", !tf32);
  } catch (const lensbox::ArtifactError& error) {
    std::cerr << error.what();
  }
  const bool is_set = rounds(at::Float32Op::CONV) == tf32 && rounds(at::Float32Op::MATMUL) == tf32;
  std::_Exit(is_set ? 0 : 1);
}

// In processes of their own, as the first artifact decides for the process.
TEST(GpuFloat32DeathTest, SetsTheFirstModeAndRejectsTheOther) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(try_both_modes(false), testing::ExitedWithCode(0),
              "third.pt: needs TF32 on GPUs, but first.pt set this process to full float32");
  EXPECT_EXIT(try_both_modes(true), testing::ExitedWithCode(0),
              "third.pt: needs full float32 on GPUs, but first.pt set this process to TF32");
}

}  // namespace
