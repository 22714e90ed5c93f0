#pragma once

#include <lensbox/api.h>

#include <filesystem>

namespace lensbox {

// Opens a shared library whose ops register themselves with torch, before an artifact that needs them is
// loaded. The library stays open for the life of the process; opening the same file again does nothing.
// Opening a library runs its code: it must come from where the program comes from. Throws ArtifactError, with
// the linker's message, if the library cannot be opened, was built for another torch, or is a second copy of
// a library that is open.
LENSBOX_API void load_op_library(const std::filesystem::path& library);

}  // namespace lensbox
