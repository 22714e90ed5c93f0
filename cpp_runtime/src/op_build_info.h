#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace lensbox {

// The record inside Lensbox's own op libraries, such as
// "lensbox-build version=0.1.0 torch=2.13.0+cpu backends=cpu,cuda".
struct OpBuildInfo {
  std::string record;
  std::string torch_version;
};

// Reads the record from the file without loading it, because a library built for another torch often cannot
// be loaded to be asked. Nothing if there is none: the library need not be Lensbox's.
std::optional<OpBuildInfo> read_op_build_info(const std::filesystem::path& library);

// "2.13" for "2.13.0+cpu". C++ interfaces of torch change between minor versions, not within them.
std::string minor_version(const std::string& version);

}  // namespace lensbox
