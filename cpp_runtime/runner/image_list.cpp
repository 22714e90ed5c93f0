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

// The image files in one folder given on the command line.
class Folder {
 public:
  Folder(const fs::path& folder, bool recursive) : recursive_(recursive) {
    visit(folder);
    std::ranges::sort(images_, {}, &ListedImage::path);
  }

  std::vector<ListedImage> images() && { return std::move(images_); }

 private:
  void visit(const fs::path& folder) {
    std::error_code error;
    for (fs::directory_iterator entry(folder, error), end; entry != end; entry.increment(error)) {
      const fs::path name = entry->path().filename();
      std::error_code ignored;  // an entry without access is no folder; reading it reports the error
      if (entry->is_directory(ignored)) {
        if (recursive_ && !entry->is_symlink(ignored) && !is_hidden(name)) visit(entry->path());
      } else if (is_image_name(name)) {
        images_.push_back({entry->path(), ""});
      }
    }
    if (error) {
      images_.push_back({folder, "folder " + folder.string() + ": cannot be read: " + error.message()});
    }
  }

  bool recursive_;
  std::vector<ListedImage> images_;
};

}  // namespace

std::vector<ListedImage> list_images(const std::vector<fs::path>& arguments, bool recursive) {
  std::vector<ListedImage> images;
  for (const fs::path& argument : arguments) {
    std::error_code error;
    if (!fs::is_directory(argument, error)) {
      images.push_back({argument, ""});
      continue;
    }
    std::vector<ListedImage> found = Folder(argument, recursive).images();
    if (found.empty()) {
      found.push_back({argument, "folder " + argument.string() +
                                     ": no file in it ends with .jpg, .jpeg or .png" +
                                     (recursive ? "" : " (--recursive also looks into the folders in it)")});
    }
    std::ranges::move(found, std::back_inserter(images));
  }
  return images;
}
