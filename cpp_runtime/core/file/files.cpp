#include "file/files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <string>
#include <system_error>

namespace lensbox {

namespace fs = std::filesystem;

namespace {

[[noreturn]] void fail_to_read(const std::error_code& error) {
  throw FileError("cannot be read: " + error.message());
}

// Read until `size` bytes or the end; append the bytes to the text.
void append(std::string& text, int descriptor, size_t size) {
  size_t had = text.size();
  text.resize(had + size);
  while (had < text.size()) {
    const ssize_t count = read(descriptor, text.data() + had, text.size() - had);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail_to_read({errno, std::generic_category()});
    if (count == 0) text.resize(had);
    had += static_cast<size_t>(count);
  }
}

}  // namespace

std::string read_stream(int descriptor, uint64_t most) {
  std::string bytes;
  for (size_t piece = size_t{1} << 16; bytes.size() <= most; piece = bytes.size()) {
    const size_t wanted = bytes.size() + piece;
    append(bytes, descriptor, piece);
    if (bytes.size() <= most && bytes.size() < wanted) return bytes;
  }
  throw FileError("at most " + std::to_string(most) + " bytes are accepted");
}

std::string read_file(const fs::path& path, uint64_t most, bool also_pipes) {
  std::error_code error;
  if (!fs::exists(path, error)) {
    if (error) fail_to_read(error);  // a folder above it may not be entered
    throw FileError("no such file");
  }
  // Opening a pipe would wait for a writer; a pipe without one is empty.
  const int descriptor = open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  if (descriptor < 0) fail_to_read({errno, std::generic_category()});
  const std::unique_ptr<const int, void (*)(const int*)> closing(&descriptor,
                                                                 [](const int* one) { close(*one); });
  struct stat state {};
  if (fstat(descriptor, &state) != 0 || fcntl(descriptor, F_SETFL, O_RDONLY) != 0) {
    fail_to_read({errno, std::generic_category()});
  }
  if (!S_ISREG(state.st_mode)) {
    if (!also_pipes || S_ISDIR(state.st_mode)) throw FileError("not a file");
    return read_stream(descriptor, most);
  }
  const auto size = static_cast<uint64_t>(state.st_size);
  if (size > most) {
    throw FileError("at most " + std::to_string(most) + " bytes are accepted, got " + std::to_string(size));
  }
  std::string bytes;
  append(bytes, descriptor, size);
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
