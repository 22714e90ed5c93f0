#pragma once

#include <c10/core/Device.h>
#include <lensbox/op_library.h>

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lensbox {

// Return the op library to load: `given` if set, else the file in the environment variable
// LENSBOX_OPS_LIBRARY if set and not empty, else the first liblensbox_ops.so beside the running program, in
// the library folder of its installation (../lib), or beside the shared library of the C++ runtime, else
// nothing.
std::optional<std::filesystem::path> find_op_library(const std::optional<std::filesystem::path>& given);

// Open a shared library of ops with a known content. Returns why it cannot be opened, or "". A library that
// is open already is not opened again; a second copy of it, by content or by Lensbox's namespace, is refused
// before the linker sees it, since registering an op twice throws inside the linker. Thread-safe.
std::string open_op_library(const std::filesystem::path& library, const std::string& content);

// Return whether a library with this SHA-256 was opened by open_op_library.
bool is_op_library_open(const std::string& sha256);

// Throw ArtifactError unless every op of `schemas` ("lensbox::giou(Tensor boxes1, ...) -> Tensor") is
// registered with that schema (or one that only adds arguments with defaults) and has a kernel for `device`.
// `library` is the loaded one, for the message.
void require_ops(const std::vector<std::string>& schemas, c10::Device device,
                 const std::optional<std::filesystem::path>& library);

// Return "lensbox::giou" of "lensbox::giou(Tensor boxes1, ...) -> Tensor", without the name of an overload.
std::string_view op_name(std::string_view schema);

// Return the record inside Lensbox's own op libraries, such as "lensbox-build version=0.1.0 torch=2.13.0+cpu
// backends=cpu", or "". It is read without loading the library, because a library built for another torch
// often cannot be loaded.
std::string op_build_record(std::string_view content);

// Return the version of torch in such a record.
std::string torch_version_of(const std::string& record);

}  // namespace lensbox
