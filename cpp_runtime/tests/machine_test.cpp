#include "model/machine.h"

#include <ATen/Context.h>
#include <gtest/gtest.h>
#include <lensbox/error.h>
#include <torch/cuda.h>

#include <atomic>
#include <chrono>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <utility>

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

void expect_rounding(bool tf32) {
  EXPECT_EQ(rounds(at::Float32Op::CONV), tf32);
  EXPECT_EQ(rounds(at::Float32Op::MATMUL), tf32);
}

// The switches exist without a GPU.
TEST(GpuFloat32, SetsTheSwitchBack) {
  const c10::Device gpu("cuda:0");
  for (const bool before : {false, true}) {
    at::globalContext().setAllowTF32CuDNN(before);
    at::globalContext().setAllowTF32CuBLAS(before);
    {
      const lensbox::GpuFloat32 cpu(c10::kCPU, !before);
      expect_rounding(before);
    }
    {
      const lensbox::GpuFloat32 first(gpu, !before);
      { const lensbox::GpuFloat32 second(gpu, !before); }
      expect_rounding(!before);
    }
    expect_rounding(before);
  }
}

TEST(GpuFloat32, LetsTheOtherKindWait) {
  const c10::Device gpu("cuda:0");
  std::atomic<bool> is_over = false;
  std::optional<lensbox::GpuFloat32> held(std::in_place, gpu, true);
  std::thread other([&] {
    const lensbox::GpuFloat32 full(gpu, false);
    EXPECT_TRUE(is_over);
    expect_rounding(false);
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  is_over = true;
  held.reset();
  other.join();
}

}  // namespace
