#include "model/device.h"

#include <ATen/Context.h>
#include <lensbox/error.h>
#include <torch/cuda.h>

#include <charconv>

#include "file/errors.h"

namespace lensbox {
namespace {

c10::Device cuda_device(const std::string& name, int index) {
  const int count = torch::cuda::device_count();
  if (index < count) return {c10::kCUDA, static_cast<c10::DeviceIndex>(index)};
  std::string reason = "CUDA devices that torch sees here: " + std::to_string(count);
  if (!at::globalContext().hasCUDART())
    reason += " (" + std::string(kTorchDescription) + " was built without CUDA)";
  throw DeviceError("device " + name + " is not available. " + reason + ".");
}

}  // namespace

c10::Device parse_device(const std::string& name) {
  if (name == "cpu") return {c10::kCPU};
  if (name == "cuda") return cuda_device(name, 0);
  if (name == "auto") return torch::cuda::is_available() ? cuda_device(name, 0) : c10::Device(c10::kCPU);
  if (name.starts_with("cuda:")) {
    int index = -1;
    const char* const end = name.data() + name.size();
    const auto [last, error] = std::from_chars(name.data() + 5, end, index);
    if (error == std::errc() && last == end && index >= 0) return cuda_device(name, index);
  }
  throw DeviceError("device must be cpu, cuda, cuda:N or auto, got '" + name + "'");
}

}  // namespace lensbox
