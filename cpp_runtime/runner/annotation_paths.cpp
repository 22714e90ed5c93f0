#include "annotation_paths.h"

#include <algorithm>
#include <set>

#include "usage_error.h"

namespace fs = std::filesystem;

namespace {

// The same file is recognised under two names, also before it exists.
fs::path identity(const fs::path& path) {
  std::error_code error;
  fs::path canonical = fs::weakly_canonical(fs::absolute(path), error);
  return error ? path : canonical;
}

std::vector<fs::path> choose_paths(const std::string& annotate, const std::vector<ListedImage>& images) {
  std::error_code error;
  if (annotate.ends_with('/') || fs::is_directory(annotate, error)) {
    std::vector<fs::path> paths;
    for (const ListedImage& image : images) {
      paths.push_back(fs::path(annotate) / image.drawing);
    }
    return paths;
  }
  if (images.size() > 1) {
    throw UsageError("--annotate must be a folder (with a slash at the end) for several images, got '" +
                     annotate + "'");
  }
  if (fs::path(annotate).extension() != ".png") {
    throw UsageError("--annotate writes PNG: the file name must end with .png, got '" + annotate + "'");
  }
  return {fs::path(annotate)};
}

}  // namespace

std::vector<fs::path> annotation_paths(const std::string& annotate, const std::vector<ListedImage>& images) {
  std::vector<fs::path> paths = choose_paths(annotate, images);
  std::set<fs::path> taken;
  for (const ListedImage& image : images) {
    taken.insert(identity(image.path));
  }
  for (size_t i = 0; i < images.size(); ++i) {
    const fs::path& path = paths[i];
    // Nothing is drawn of what cannot be read.
    if (images[i].fault.empty() && !taken.insert(identity(path)).second) {
      throw UsageError("--annotate would write " + path.string() +
                       " twice, or over an image: give another folder, or run the images one by one");
    }
  }
  return paths;
}
