#pragma once

#include <filesystem>
#include <stdexcept>
#include <string>
#include <vector>

// The command line asks for something that cannot be.
struct UsageError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Where the annotated copy of each image goes: `annotate` itself if it names a PNG file (one image only), or
// <folder>/<stem of the image>.png if it is a folder or ends with a slash. Throws UsageError if a file would
// be written twice, or over one of the images.
std::vector<std::filesystem::path> annotation_paths(const std::string& annotate,
                                                    const std::vector<std::filesystem::path>& images);
