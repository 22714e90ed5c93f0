#pragma once

#include <lensbox/error.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace lensbox {

// A file cannot be read. The message is the reason alone, such as "no such file".
struct FileError : InputError {
  using InputError::InputError;
};

// Return the content of a file. Throws FileError if it is absent, unreadable, or has more than `most` bytes.
// Pipes are refused unless `also_pipes`: opening one may block for ever.
std::string read_file(const std::filesystem::path& path, uint64_t most, bool also_pipes = false);

// The same, but throws ArtifactError, which names the file after `what`, such as "signature".
std::string read_needed(const std::string& what, const std::filesystem::path& path, uint64_t most,
                        bool also_pipes = false);

}  // namespace lensbox
