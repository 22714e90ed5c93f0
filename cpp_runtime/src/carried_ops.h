#pragma once

#include <lensbox/torch/metadata.h>

#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace lensbox {

// System and processor of this process, such as linux-x86_64.
std::string this_platform();

// Opens the op libraries that an artifact carries: machine code, so only of files that are trusted. Does not
// open a library twice, nor any where the process has all operators of `schemas` already.
// contents: the libraries' bytes by name. Throws ArtifactError with the artifact's path if one is missing,
// has another hash than it should, was built for another platform or torch, or is refused by the linker.
void open_carried_libraries(const std::filesystem::path& artifact,
                            const std::vector<CarriedLibrary>& libraries,
                            const std::map<std::string, std::string>& contents,
                            const std::vector<std::string>& schemas);

}  // namespace lensbox
