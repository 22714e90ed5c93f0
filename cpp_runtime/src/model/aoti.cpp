#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>
#include <c10/util/tempfile.h>
#include <dlfcn.h>
#include <link.h>
#include <torch/csrc/inductor/aoti_package/model_package_loader.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "model/detector_module.h"
#include "model/torch_errors.h"

namespace lensbox {
namespace {

namespace fs = std::filesystem;
using Loader = torch::inductor::AOTIModelPackageLoader;

constexpr const char* kModel = "detect";
// The number of concurrent calls on the CPU, which share the weights; further calls wait.
constexpr size_t kMostCalls = 8;

// Open libtorch.so, which the compiled code requires. It is an empty library beside libtorch_cpu.so; this
// program may be linked with the latter only.
void open_libtorch() {
  fs::path folder;
  const auto find = [](dl_phdr_info* object, size_t /*size*/, void* found) {
    const fs::path library = object->dlpi_name;
    if (library.filename() != "libtorch_cpu.so") return 0;
    *static_cast<fs::path*>(found) = library.parent_path();
    return 1;
  };
  // If this fails, the loader names the missing library.
  if (dl_iterate_phdr(find, &folder) != 0) dlopen((folder / "libtorch.so").c_str(), RTLD_NOW | RTLD_GLOBAL);
}

std::unique_ptr<Loader> load(const fs::path& artifact, std::string_view bytes, c10::Device device) {
  const size_t processors = std::max(1U, std::thread::hardware_concurrency());
  open_libtorch();
  try {
    // The loader reads only files, and needs the file only while it loads.
    const auto file = c10::try_make_tempfile("lensbox-");
    std::ofstream stream(file ? file->name : "", std::ios::binary);
    stream << bytes;
    stream.close();
    if (!stream) throw std::system_error(errno, std::generic_category());
    const bool single = device.is_cuda();
    return std::make_unique<Loader>(file->name, kModel, single, single ? 1 : std::min(kMostCalls, processors),
                                    device.index());
  } catch (const std::system_error& error) {
    fail_artifact(artifact, std::string("cannot be written to a temporary file (TMPDIR): ") + error.what());
  } catch (const std::exception& error) {
    const std::string message = torch_message(error);
    const bool may_not_run = message.find("failed to map segment") != std::string::npos;
    fail_artifact(artifact, "cannot be loaded on " + device.str() + " by " + kTorchDescription +
                                ". torch says:\n" + message +
                                (may_not_run ? "\n  TMPDIR must name a folder whose programs may run" : ""));
  }
}

}  // namespace

Code load_package(const fs::path& artifact, std::string_view bytes, c10::Device device) {
  const std::shared_ptr<Loader> loader = load(artifact, bytes, device);
  const auto turn = std::make_shared<std::mutex>();  // of the calls on a GPU
  return [loader, turn, device](const Tensors& inputs) {
    const c10::DeviceGuard on_device(device);
    std::unique_lock<std::mutex> lock(*turn, std::defer_lock);
    if (device.is_cuda()) lock.lock();
    return loader->run(inputs);  // on the current stream
  };
}

}  // namespace lensbox
