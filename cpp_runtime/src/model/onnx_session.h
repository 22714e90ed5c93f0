#pragma once

#include <lensbox/metadata.h>

#include <filesystem>
#include <string_view>

#include "model/methods.h"

namespace lensbox {

// Open an ONNX model in onnxruntime, on the CPU, and return its detect. All callers share its threads.
// threads: of the CPU for one batch. Throws ArtifactError, naming the artifact, if inputs and outputs of the
// model are not those that its lensbox.json says, if onnxruntime refuses the model or is not there, or if
// this library was built without it.
DetectCode open_onnx_session(const std::filesystem::path& artifact, std::string_view model,
                             const Metadata& metadata, int threads);

}  // namespace lensbox
