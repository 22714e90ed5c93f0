#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace lensbox {

// Why the dynamic linker must not be given a file: an ELF file for another kind of machine, or one that ends
// before its segments or sections do. The linker maps such a file into memory all the same, and the process
// dies of SIGBUS. Nothing for a sound file, and for one that is no ELF file: the linker says so itself.
std::optional<std::string> shared_library_fault(const std::filesystem::path& library);

// Opens a shared library for the life of the process; its code runs. Why it could not be opened: the fault,
// or the linker's own words. A library that is open already is not opened again.
std::optional<std::string> open_shared_library(const std::filesystem::path& library);

}  // namespace lensbox
