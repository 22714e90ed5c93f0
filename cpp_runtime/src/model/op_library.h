#pragma once

#include <c10/core/Device.h>
#include <lensbox/detector.h>

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace lensbox {

// Return the op library to load: `given` if set, else the file in the environment variable
// LENSBOX_OPS_LIBRARY if set and not empty, else the first liblensbox_ops.so beside the running program, in
// the library folder of its installation (../lib), or beside the shared library of the C++ runtime, else
// nothing.
std::optional<std::filesystem::path> find_op_library(const std::optional<std::filesystem::path>& given);

// Open the op libraries that an artifact carries. They are machine code: call this only for files whose
// signature was checked. A library that is open already, by its SHA-256, is not opened again. contents: the
// libraries' bytes by name. schemas: the ops that the artifact needs. Throws ArtifactError with the
// artifact's path if a library is missing, has another hash than lensbox.json says, was built for another
// platform or torch, is refused by the linker, or if another library has registered its ops.
void open_carried_libraries(const std::filesystem::path& artifact,
                            const std::vector<CarriedLibrary>& libraries,
                            const std::map<std::string, std::string>& contents,
                            const std::vector<std::string>& schemas);

// Throw ArtifactError unless every op of `schemas` ("lensbox::giou(Tensor boxes1, ...) -> Tensor") is
// registered with that schema (or one that only adds arguments with defaults) and has a kernel for `device`.
// `library` is the loaded one, for the message.
void require_ops(const std::vector<std::string>& schemas, c10::Device device,
                 const std::optional<std::filesystem::path>& library);

}  // namespace lensbox
