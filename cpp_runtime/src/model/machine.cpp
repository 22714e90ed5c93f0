#include "model/machine.h"

#include <ATen/Context.h>
#include <c10/util/StringUtil.h>
#include <dlfcn.h>
#include <lensbox/error.h>
#include <sys/utsname.h>
#include <torch/cuda.h>
#include <torch/version.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <iterator>
#include <mutex>
#include <optional>
#include <set>
#include <sstream>

#include "model/torch_errors.h"

namespace lensbox {
namespace {

namespace fs = std::filesystem;

// Return the platform of this process, such as linux-x86_64.
std::string this_platform() {
  utsname names{};
  uname(&names);
  return std::string("linux-") + names.machine;
}

// Return the architecture of a GPU, such as sm_90, or "" if the driver cannot be asked. The driver is
// installed if torch has a GPU, so neither CUDA's headers nor its run-time library are needed.
std::string gpu_architecture(c10::Device device) {
  void* const driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);  // for the life of the process
  if (driver == nullptr) return "";
  const auto init = reinterpret_cast<int (*)(unsigned int)>(dlsym(driver, "cuInit"));
  const auto get = reinterpret_cast<int (*)(int*, int)>(dlsym(driver, "cuDeviceGet"));
  const auto attribute = reinterpret_cast<int (*)(int*, int, int)>(dlsym(driver, "cuDeviceGetAttribute"));
  if (init == nullptr || get == nullptr || attribute == nullptr) return "";
  // cuda.h: CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and _MINOR.
  constexpr int kMajor = 75, kMinor = 76;
  int handle = 0, major = 0, minor = 0;
  const int index = std::max<int>(device.index(), 0);
  if (init(0) != 0 || get(&handle, index) != 0 || attribute(&major, kMajor, handle) != 0 ||
      attribute(&minor, kMinor, handle) != 0) {
    return "";
  }
  return "sm_" + std::to_string(major) + std::to_string(minor);
}

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

std::vector<std::string> lacking_features(const std::vector<std::string>& needed, std::istream&& cpuinfo) {
  std::set<std::string> present;
  for (std::string line; present.empty() && std::getline(cpuinfo, line);) {
    if (!line.starts_with("flags") && !line.starts_with("Features")) continue;  // of x86-64 and of ARM
    std::istringstream words(line.substr(std::min(line.find(':'), line.size() - 1) + 1));
    present = {std::istream_iterator<std::string>(words), {}};
  }
  std::vector<std::string> lacking;
  std::ranges::copy_if(needed, std::back_inserter(lacking),
                       [&](const std::string& feature) { return !present.contains(feature); });
  return lacking;
}

void require_machine(const fs::path& artifact, const Compiled& compiled, c10::Device device) {
  const auto fail = [&](const std::string& made_for, const std::string& here) {
    fail_artifact(artifact, "was compiled for " + made_for + here +
                                ": export the detector again, on a machine like this one");
  };
  if (minor_version(compiled.torch_version) != minor_version(TORCH_VERSION)) {
    fail("torch " + compiled.torch_version, std::string("; this program has ") + kTorchDescription +
                                                ", and C++ interfaces change between minor versions");
  }
  if ((compiled.device == "cuda") != device.is_cuda()) {
    throw DeviceError("device must be " + compiled.device + ", for which " + artifact.string() +
                      " was compiled, got " + device.str());
  }
  if (compiled.platform != this_platform()) {
    fail(compiled.platform, "; this machine is " + this_platform());
  }
  const auto lacking = lacking_features(compiled.cpu_features, std::ifstream("/proc/cpuinfo"));
  if (!lacking.empty()) {
    fail("a processor with " + c10::Join(", ", lacking), ", which this one lacks");
  }
  if (device.is_cuda() && gpu_architecture(device) != compiled.gpu_architecture) {
    fail("a GPU of architecture " + compiled.gpu_architecture,
         "; " + device.str() + " has " + gpu_architecture(device));
  }
}

void set_gpu_float32(const std::string& artifact, bool tf32) {
  struct First {
    std::string artifact;
    bool tf32;
  };
  static std::mutex setting;
  static std::optional<First> first;  // the first artifact on a GPU
  const auto mode = [](bool is_tf32) { return is_tf32 ? "TF32" : "full float32"; };
  const std::lock_guard lock(setting);
  if (!first) first = {artifact, tf32};
  if (first->tf32 != tf32) {
    fail_artifact(artifact, std::string("needs ") + mode(tf32) + " on GPUs, but " + first->artifact +
                                " set this process to " + mode(first->tf32) + ": use a process for each");
  }
  // These switches set torch's newer interface, setFloat32Precision, too.
  at::globalContext().setAllowTF32CuDNN(tf32);
  at::globalContext().setAllowTF32CuBLAS(tf32);
}

}  // namespace lensbox
