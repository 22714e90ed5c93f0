#include "image_list.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <string_view>
#include <system_error>

namespace fs = std::filesystem;

namespace {

constexpr std::array<std::string_view, 3> kEndings{".jpg", ".jpeg", ".png"};

bool is_hidden(const fs::path& path) {
  return path.filename().native().starts_with('.');
}

bool is_image_name(const fs::path& path) {
  std::string ending = path.extension().string();
  std::ranges::transform(ending, ending.begin(), [](unsigned char c) { return std::tolower(c); });
  return !is_hidden(path) && std::ranges::find(kEndings, ending) != kEndings.end();
}

void add_folder(const fs::path& folder, bool recursive, std::vector<ListedImage>& images) {
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; entry != end; entry.increment(error)) {
    const fs::path& path = entry->path();
    std::error_code ignored;  // an entry without access is no folder; reading it reports the error
    if (entry->is_directory(ignored)) {
      if (recursive && !entry->is_symlink(ignored) && !is_hidden(path)) add_folder(path, recursive, images);
    } else if (is_image_name(path)) {
      images.push_back({path, ""});
    }
  }
  if (error) {
    images.push_back({folder, "folder " + folder.string() + ": cannot be read: " + error.message()});
  }
}

}  // namespace

std::vector<ListedImage> list_images(const std::vector<fs::path>& arguments, bool recursive) {
  std::vector<ListedImage> images;
  for (const fs::path& argument : arguments) {
    std::error_code error;
    if (!fs::is_directory(argument, error)) {
      images.push_back({argument, ""});
      continue;
    }
    std::vector<ListedImage> found;
    add_folder(argument, recursive, found);
    std::ranges::sort(found, {}, &ListedImage::path);
    if (found.empty()) {
      found.push_back({argument, "folder " + argument.string() +
                                     ": no file in it ends with .jpg, .jpeg or .png" +
                                     (recursive ? "" : " (--recursive also looks into the folders in it)")});
    }
    std::ranges::move(found, std::back_inserter(images));
  }
  return images;
}
