// A library without libtorch: -DLENSBOX_TORCH=OFF.

#include <lensbox/version.h>

#include <algorithm>
#include <cstdlib>
#include <thread>

#include "backends/backend.h"
#include "file/errors.h"

namespace lensbox {

std::shared_ptr<Backend> load_with_torch(const std::filesystem::path& artifact, ArtifactFile file,
                                         const std::string& /*device*/, const LoadOptions& /*options*/) {
  const FileKind kind = file.metadata.file_kind;
  const char* const name = kind == FileKind::kTorchScript ? "a TorchScript file"
                           : kind == FileKind::kProgram   ? "a program of torch.export"
                                                          : "a package of machine code";
  fail_artifact(artifact, std::string("is ") + name +
                              ", which needs libtorch, and this program was built without it: build it with "
                              "-DLENSBOX_TORCH=ON, or export the detector as ONNX");
}

std::string checked_device(const std::string& name) {
  if (name == "auto" || !gpu_index(name)) return "cpu";
  throw DeviceError("device " + name + " is not available. This program was built without libtorch.");
}

int default_threads() {
  const char* const variable = std::getenv("OMP_NUM_THREADS");
  const int given = variable != nullptr ? std::atoi(variable) : 0;
  return given > 0 ? given : std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

int threads_of_torch() {
  return 1;
}

bool is_cuda_available() {
  return false;
}

std::string message_of(const std::exception& error) {
  return error.what();
}

std::optional<std::string> libtorch_version() {
  return std::nullopt;
}

}  // namespace lensbox
