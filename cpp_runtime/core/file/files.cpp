#include "file/files.h"

#include <cerrno>
#include <fstream>
#include <string>
#include <system_error>

namespace lensbox {

namespace fs = std::filesystem;

namespace {

[[noreturn]] void fail_to_read(const std::error_code& error) {
  throw FileError(error ? "cannot be read: " + error.message() : "cannot be read");
}

}  // namespace

std::string read_file(const fs::path& path, uint64_t most, bool also_pipes) {
  std::error_code error;
  if (!fs::exists(path, error)) {
    if (error) fail_to_read(error);  // a folder above it may not be entered
    throw FileError("no such file");
  }
  const bool is_pipe = also_pipes && !fs::is_directory(path, error) && !fs::is_regular_file(path, error);
  if (!is_pipe && !fs::is_regular_file(path, error)) throw FileError("not a file");
  errno = 0;
  std::ifstream stream(path, std::ios::binary);
  if (!stream.is_open()) fail_to_read({errno, std::generic_category()});
  const uint64_t size = is_pipe ? most + 1 : fs::file_size(path, error);
  if (error) fail_to_read(error);
  if (!is_pipe && size > most) {
    throw FileError("at most " + std::to_string(most) + " bytes are accepted, got " + std::to_string(size));
  }
  std::string bytes(size, '\0');
  stream.read(bytes.data(), static_cast<std::streamsize>(size));
  if (stream.bad() || (!is_pipe && !stream)) fail_to_read({});
  bytes.resize(static_cast<size_t>(stream.gcount()));
  if (bytes.size() > most) throw FileError("at most " + std::to_string(most) + " bytes are accepted");
  return bytes;
}

std::string read_needed(const std::string& what, const fs::path& path, uint64_t most, bool also_pipes) {
  try {
    return read_file(path, most, also_pipes);
  } catch (const FileError& error) {
    throw ArtifactError(what + " " + path.string() + ": " + error.what());
  }
}

}  // namespace lensbox
