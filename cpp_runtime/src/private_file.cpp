#include "private_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <string>
#include <system_error>

namespace lensbox {

namespace fs = std::filesystem;

PrivateFolder::PrivateFolder() {
  std::string name = (fs::temp_directory_path() / "lensbox-XXXXXX").string();
  if (mkdtemp(name.data()) == nullptr) throw std::system_error(errno, std::generic_category(), name);
  path_ = name;
}

PrivateFolder::~PrivateFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

void write_private_file(const fs::path& path, std::string_view content) {
  const auto check = [&](auto result) {
    if (result < 0) throw std::system_error(errno, std::generic_category(), path.string());
    return result;
  };
  const int file = check(open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  try {
    while (!content.empty()) {
      content.remove_prefix(check(write(file, content.data(), content.size())));
    }
  } catch (...) {
    close(file);
    throw;
  }
  check(close(file));
}

}  // namespace lensbox
