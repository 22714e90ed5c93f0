#pragma once

#include <filesystem>
#include <string_view>

namespace lensbox {

// In the system's folder for temporary files, with a name that nobody can guess, and open to this user alone;
// removed with what lies in it. Throws std::system_error.
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

// A new file that only this user can read. Throws std::system_error.
void write_private_file(const std::filesystem::path& path, std::string_view content);

}  // namespace lensbox
