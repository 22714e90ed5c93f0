#pragma once

#include <c10/core/Device.h>

#include <filesystem>
#include <string_view>

#include "model/methods.h"

namespace lensbox {

// Return the compiled code of detect in an AOTInductor package, `bytes`, that was compiled for this machine.
// Throws ArtifactError, naming the artifact.
//
// On a GPU the code runs without AOTInductor's own bookkeeping, which asks for events of earlier runs, and
// that cannot be captured in a CUDA graph. Calls are launched one after another instead.
DetectCode load_package(const std::filesystem::path& artifact, std::string_view bytes, c10::Device device);

}  // namespace lensbox
