#pragma once

#include <lensbox/image_io.h>

namespace lensbox {

// An image as it lies in its file.
struct StoredImage {
  Image image;  // 1 / reduction of the full size, rounded up
  int width;    // at full size
  int height;
  int reduction;    // 1, 2, 4 or 8
  int orientation;  // EXIF's, 1..8
};

}  // namespace lensbox
