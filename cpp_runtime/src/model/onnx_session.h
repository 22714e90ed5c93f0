#pragma once

#include <lensbox/metadata.h>

#include <filesystem>
#include <string_view>

#include "model/methods.h"

namespace lensbox {

// Open an ONNX model in onnxruntime, on the CPU, and return its detect. All callers share its threads.
// threads: CPU threads for one batch. Throws ArtifactError, naming the artifact, if onnxruntime refuses the
// model or is not there, or if this library was built without it. A call fails if the model lacks an input or
// output, or has one of another type or size.
DetectCode open_onnx_session(const std::filesystem::path& artifact, std::string_view model,
                             const Metadata& metadata, int threads);

}  // namespace lensbox
