#include "model/device.h"

#include <ATen/Context.h>
#include <gtest/gtest.h>
#include <lensbox/error.h>
#include <torch/cuda.h>

#include "expect_error.h"

namespace {

TEST(Device, Cpu) {
  EXPECT_TRUE(lensbox::parse_device("cpu").is_cpu());
}

TEST(Device, AutoIsCudaWhereThereIsAGpu) {
  EXPECT_EQ(lensbox::parse_device("auto").is_cuda(), torch::cuda::is_available());
}

TEST(Device, RefusesAGpuThatIsNotThere) {
  const std::string name = "cuda:" + std::to_string(torch::cuda::device_count());
  expect_error<lensbox::DeviceError>([&] { lensbox::parse_device(name); }, {name.c_str(), "not available"});
}

TEST(Device, RefusesOtherNames) {
  for (const char* name : {"", "gpu", "cuda:", "cuda:-1", "cuda:1x", "cuda:99999999999", "CUDA", "cpu:0"}) {
    expect_error<lensbox::DeviceError>([&] { lensbox::parse_device(name); },
                                       {"cpu, cuda, cuda:N or auto", name});
  }
}

// The linker must not have dropped libtorch_cuda, of which no symbol is used here.
TEST(Device, ACudaBuildOfTorchBringsCuda) {
  EXPECT_EQ(at::globalContext().hasCUDART(), LENSBOX_TORCH_HAS_CUDA == 1);
}

}  // namespace
