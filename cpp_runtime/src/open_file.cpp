#include "open_file.h"

#include <cerrno>
#include <system_error>
#include <utility>

namespace lensbox {
namespace {

namespace fs = std::filesystem;

std::string unreadable(const std::error_code& error) {
  return error ? "cannot be read: " + error.message() : "cannot be read";
}

}  // namespace

OpenedFile open_file(const fs::path& path, bool also_pipes) {
  std::error_code error;
  if (!fs::exists(path, error)) {
    // An error: a folder above it may not be entered, so nobody knows.
    return {{}, error ? unreadable(error) : "no such file"};
  }
  const bool is_file = also_pipes ? !fs::is_directory(path, error) : fs::is_regular_file(path, error);
  if (!is_file) return {{}, "not a file"};
  errno = 0;
  std::ifstream stream(path, std::ios::binary);
  if (!stream.is_open()) return {{}, unreadable({errno, std::generic_category()})};
  return {std::move(stream), {}};
}

}  // namespace lensbox
