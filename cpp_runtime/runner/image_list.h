#pragma once

#include <filesystem>
#include <string>
#include <vector>

// A file that --image names, itself or by its folder.
struct ListedImage {
  std::filesystem::path path;
  std::string fault;  // why it cannot be read, if that is known; else empty
};

// Return the files that `arguments` name, in order. A file stands for itself. A folder stands for its image
// files in the order of their names, and with `recursive` also for the image files in folders below. The name
// of an image file ends with .jpg, .jpeg or .png, in small or capital letters, and does not begin with a dot.
// Folders below that are links, or whose names begin with a dot, are skipped. A folder that is unreadable or
// has no image files is in the list with its fault.
std::vector<ListedImage> list_images(const std::vector<std::filesystem::path>& arguments, bool recursive);
