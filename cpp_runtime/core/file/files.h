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

// Return the content of a regular file. Throws FileError if it is absent, unreadable, or has more than `most`
// bytes. also_pipes: also read a pipe or a device up to its end, which may take for ever.
std::string read_file(const std::filesystem::path& path, uint64_t most, bool also_pipes = false);

// Return the bytes up to the end of an open file, such as stdin. Throws FileError as `read_file` does.
std::string read_stream(int descriptor, uint64_t most);

// The same as `read_file`, but throws ArtifactError, which names the file after `what`, such as "signature".
std::string read_needed(const std::string& what, const std::filesystem::path& path, uint64_t most,
                        bool also_pipes = false);

}  // namespace lensbox
