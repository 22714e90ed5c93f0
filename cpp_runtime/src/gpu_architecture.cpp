// Asks the driver, which is there wherever torch has a GPU, so that neither the headers of CUDA nor its
// run-time library are needed.

#include "gpu_architecture.h"

#include <dlfcn.h>

#include <algorithm>

namespace lensbox {
namespace {

// cuda.h: CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and _MINOR.
constexpr int kMajor = 75;
constexpr int kMinor = 76;

template <class Function>
Function* find(void* library, const char* name) {
  return reinterpret_cast<Function*>(dlsym(library, name));
}

}  // namespace

std::string gpu_architecture(c10::Device device) {
  void* const driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);  // for the life of the process
  if (driver == nullptr) return "";
  const auto init = find<int(unsigned int)>(driver, "cuInit");
  const auto get = find<int(int*, int)>(driver, "cuDeviceGet");
  const auto attribute = find<int(int*, int, int)>(driver, "cuDeviceGetAttribute");
  if (init == nullptr || get == nullptr || attribute == nullptr) return "";
  int handle = 0, major = 0, minor = 0;
  const int index = std::max<int>(device.index(), 0);
  if (init(0) != 0 || get(&handle, index) != 0 || attribute(&major, kMajor, handle) != 0 ||
      attribute(&minor, kMinor, handle) != 0) {
    return "";
  }
  return "sm_" + std::to_string(major) + std::to_string(minor);
}

}  // namespace lensbox
