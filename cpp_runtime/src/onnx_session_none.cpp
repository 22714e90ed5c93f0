// In place of onnx_session.cpp and onnxruntime_library.cpp, where onnxruntime is not there.

#include <lensbox/error.h>
#include <lensbox/version.h>

#include "onnx_session.h"

namespace lensbox {

std::shared_ptr<const OnnxSession> open_onnx_session(const std::filesystem::path& artifact,
                                                     std::string_view /*model*/, int /*threads*/) {
  throw ArtifactError("artifact " + artifact.string() +
                      ": an ONNX file, which needs onnxruntime, and this program was built without it: build "
                      "it with -DLENSBOX_ONNX=ON -DONNXRUNTIME_ROOT=<a folder that has onnxruntime's headers "
                      "and library>");
}

std::optional<std::string> onnxruntime_version() {
  return std::nullopt;
}

}  // namespace lensbox
