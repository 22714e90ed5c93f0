#pragma once

#include <filesystem>
#include <fstream>
#include <string>

namespace lensbox {

// A file opened for reading, or why it is not: then `fault` is no longer empty, such as "no such file" or
// "cannot be read: Permission denied". Pipes are no files unless `also_pipes`: opening one may wait for ever.
struct OpenedFile {
  std::ifstream stream;
  std::string fault;
};

OpenedFile open_file(const std::filesystem::path& path, bool also_pipes = false);

}  // namespace lensbox
