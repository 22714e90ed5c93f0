#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "image_list.h"

// Where the annotated copy of each image goes: `annotate` itself if it names a PNG file (one image only), or
// <folder>/<drawing of the image> if it is a folder or ends with a slash. Throws UsageError if a file would
// be written twice, or over one of the images.
std::vector<std::filesystem::path> annotation_paths(const std::string& annotate,
                                                    const std::vector<ListedImage>& images);
