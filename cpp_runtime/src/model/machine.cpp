#include "model/machine.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>
#include <dlfcn.h>
#include <lensbox/error.h>
#include <lensbox/version.h>
#include <sys/utsname.h>
#include <torch/cuda.h>
#include <torch/version.h>

#include <algorithm>
#include <array>
#include <condition_variable>
#include <fstream>
#include <iterator>
#include <mutex>
#include <optional>
#include <set>
#include <sstream>

#include "backends/backend.h"
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
  if (name == "auto") return parse_device(torch::cuda::is_available() ? "cuda" : "cpu");
  const std::optional<int> index = gpu_index(name);
  return index ? cuda_device(name, *index) : c10::Device(c10::kCPU);
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

namespace {

// The switch of torch. Its older interface sets the newer one, setFloat32Precision, too.
struct Float32Switch {
  std::mutex mutex;
  std::condition_variable is_free;
  int holders = 0;
  bool tf32 = false;                // of the holders
  std::array<bool, 2> before = {};  // of cuDNN and cuBLAS

  // The older interface throws where a program has used the newer one; what it set then is not known here.
  static std::array<bool, 2> current() {
    try {
      return {at::globalContext().allowTF32CuDNN(), at::globalContext().allowTF32CuBLAS()};
    } catch (const c10::Error&) {
      return {false, false};
    }
  }

  static void set(bool cudnn, bool cublas) {
    at::globalContext().setAllowTF32CuDNN(cudnn);
    at::globalContext().setAllowTF32CuBLAS(cublas);
  }
};

Float32Switch& float32_switch() {
  static Float32Switch& the_switch = *new Float32Switch;  // calls may outlive static objects
  return the_switch;
}

}  // namespace

GpuFloat32::GpuFloat32(c10::Device device, bool tf32) : is_held_(device.is_cuda()) {
  if (!is_held_) return;
  Float32Switch& all = float32_switch();
  std::unique_lock lock(all.mutex);
  all.is_free.wait(lock, [&] { return all.holders == 0 || all.tf32 == tf32; });
  if (all.holders == 0) {
    all.before = Float32Switch::current();
    all.tf32 = tf32;
    Float32Switch::set(tf32, tf32);
  }
  ++all.holders;
}

GpuFloat32::~GpuFloat32() {
  if (!is_held_) return;
  Float32Switch& all = float32_switch();
  const std::lock_guard lock(all.mutex);
  if (--all.holders > 0) return;
  Float32Switch::set(all.before[0], all.before[1]);
  all.is_free.notify_all();
}

// --- what the core asks of libtorch ---

std::string checked_device(const std::string& name) {
  return parse_device(name).str();
}

int default_threads() {
  return at::get_num_threads();
}

int threads_of_torch() {
  return at::get_num_threads();
}

bool is_cuda_available() {
  return torch::cuda::is_available();
}

std::string message_of(const std::exception& error) {
  const auto* torch_error = dynamic_cast<const c10::Error*>(&error);
  return torch_error != nullptr ? torch_error->what_without_backtrace() : error.what();
}

std::optional<std::string> libtorch_version() {
  return TORCH_VERSION;
}

}  // namespace lensbox
