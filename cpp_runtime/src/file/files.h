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

// A new folder for temporary files, with an unguessable name, open to this user alone; removed with its
// content. Throws std::system_error.
class PrivateFolder {
 public:
  PrivateFolder();
  ~PrivateFolder();

  PrivateFolder(const PrivateFolder&) = delete;
  PrivateFolder& operator=(const PrivateFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace lensbox
