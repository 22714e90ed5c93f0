#include "onnxruntime_library.h"

#include <dlfcn.h>
#include <onnxruntime_c_api.h>

#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <string>

#include "shared_library_file.h"

namespace lensbox {
namespace {

namespace fs = std::filesystem;

constexpr const char* kEnvironmentVariable = "LENSBOX_ONNXRUNTIME";
constexpr const char* kBuiltWith = LENSBOX_ONNXRUNTIME_LIBRARY;
constexpr const char* kSystemLibrary = "libonnxruntime.so.1";

[[noreturn]] void fail(const fs::path& library, const std::string& reason) {
  throw std::runtime_error(library.string() + " cannot be used: " + reason + ". " + kEnvironmentVariable +
                           " can name another file.");
}

fs::path choose_library() {
  const char* const variable = std::getenv(kEnvironmentVariable);
  if (variable != nullptr && *variable != '\0') return fs::absolute(variable);
  std::error_code error;
  return fs::exists(kBuiltWith, error) ? kBuiltWith : kSystemLibrary;
}

const OrtApiBase& open_library(const fs::path& library) {
  if (const auto fault = shared_library_fault(library)) fail(library, *fault);
  void* const handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  void* const function = handle == nullptr ? nullptr : dlsym(handle, "OrtGetApiBase");
  if (function == nullptr) fail(library, dlerror());
  const OrtApiBase& base = *reinterpret_cast<decltype(&OrtGetApiBase)>(function)();
  if (base.GetApi(ORT_API_VERSION) == nullptr) {
    fail(library, std::string("it is onnxruntime ") + base.GetVersionString() + ", and must be 1." +
                      std::to_string(ORT_API_VERSION) + " or newer");
  }
  return base;
}

}  // namespace

const OrtApiBase& onnxruntime() {
  static const OrtApiBase& library = open_library(choose_library());
  return library;
}

}  // namespace lensbox
