#pragma once

#include <filesystem>
#include <string>
#include <vector>

// A file that --image names, itself or by its folder.
struct ListedImage {
  std::filesystem::path path;
  std::filesystem::path drawing;  // its annotated copy, below the folder of --annotate
  std::string fault;              // why it cannot be read, where that is known; else empty
};

// The files that `arguments` name, in order: a file stands for itself, a folder for the image files in it, in
// the order of their names, and with `recursive` also for those in the folders below. An image file is what
// is no folder and has a name that ends with .jpg, .jpeg or .png, in small or capital letters, and does not
// begin with a dot. Folders below that are links, or whose names begin with a dot, are left out, and so is
// `drawings`, the folder of annotated copies if there are any. Throws UsageError if `drawings` is among the
// arguments, since a second run would then look at the drawings of the first.
//
// The drawing of a file is <stem>.png; that of a file in a folder is its path below that folder and .png, as
// sub/a.jpg.png, so that no two are the same. A folder without image files, or that cannot be read, is in the
// list with its fault.
std::vector<ListedImage> list_images(const std::vector<std::filesystem::path>& arguments, bool recursive,
                                     const std::filesystem::path& drawings = {});
