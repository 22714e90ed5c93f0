#pragma once

#include <array>

#include "stored_image.h"

namespace lensbox {

// A picture at full size, and where the pixels of an image lie in it, once both are turned upright.
struct UprightImage {
  Image image;
  int width;
  int height;
  std::array<float, 4> window;  // x1, y1, x2, y2
};

// Turned as its EXIF orientation says, or left as it lies.
UprightImage turn_upright(StoredImage stored, Orientation orientation);

// Whether an EXIF orientation, 1..8, makes columns of the rows.
bool swaps_sides(int exif_orientation);

}  // namespace lensbox
