#pragma once

#include <lensbox/metadata.h>

#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace lensbox {

// Open the op libraries that an artifact carries. They are machine code: call this only for files whose
// signature was checked. A library that is open already, by its SHA-256, is not opened again. contents: the
// libraries' bytes by name. schemas: the ops that the artifact needs. Throws ArtifactError with the
// artifact's path if a library is missing, has another hash than lensbox.json says, was built for another
// platform or torch, is refused by the linker, or if another library has registered its ops.
void open_carried_libraries(const std::filesystem::path& artifact,
                            const std::vector<CarriedLibrary>& libraries,
                            const std::map<std::string, std::string>& contents,
                            const std::vector<std::string>& schemas);

}  // namespace lensbox
