#pragma once

#include <c10/core/Device.h>
#include <lensbox/api.h>

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace lensbox {

// The op library to load: `given` if set, else the environment variable LENSBOX_OPS_LIBRARY if set and not
// empty, else the first liblensbox_ops.so that is there beside the running program, in the library folder of
// its installation (../lib), or beside the shared library of the C++ runtime, else nothing.
LENSBOX_API std::optional<std::filesystem::path> find_op_library(
    const std::optional<std::filesystem::path>& given);

// Opens a shared library whose ops register themselves with torch. It stays open for the life of the process
// (its kernels are in torch's tables); opening the same file again does nothing. Opening it runs its code: it
// must come from where the program comes from. Throws ArtifactError if the file is cut off or for another
// kind of machine or torch, else with the linker's own words.
LENSBOX_API void load_op_library(const std::filesystem::path& library);

// Throws ArtifactError unless every op of `schemas` ("lensbox::giou(Tensor boxes1, ...) -> Tensor") is
// registered with that schema (or one that only adds arguments with defaults) and has a kernel for `device`.
// `library` is the one that was loaded, for the message.
LENSBOX_API void require_ops(const std::vector<std::string>& schemas, c10::Device device,
                             const std::optional<std::filesystem::path>& library);

}  // namespace lensbox
