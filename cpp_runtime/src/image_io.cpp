#include <lensbox/image_io.h>

#include "image_file.h"

namespace lensbox {

Image read_image(const std::filesystem::path& path, Orientation orientation) {
  return read_image_file(path, {.canvas = std::nullopt, .reading = {.orientation = orientation}}).image;
}

}  // namespace lensbox
