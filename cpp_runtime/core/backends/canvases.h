#pragma once

#include <lensbox/metadata.h>

#include <array>
#include <cstdint>
#include <vector>

#include "images/pixels.h"

namespace lensbox {

// The position of a photograph in its canvas: canvas point = photograph point * scale + offset, and the size
// of the photograph. All steps are rounded to float32, as the ops restore_boxes and restore_points do.
struct Geometry {
  float scale_x, scale_y, offset_x, offset_y, width, height;

  void restore_point(float* xy) const;
  void restore_box(float* xyxy) const;  // kept within the photograph
};

// A batch of canvases in the CPU's memory, and the photographs' positions in them.
struct FittedPhotos {
  std::vector<uint8_t> canvases;  // [B, c, h, w]
  std::vector<Geometry> geometry;
};

// Fit photographs to the canvas, by the kernel of the op `fit`, to the same bytes. threads: that share the
// photographs. Throws std::invalid_argument for a photograph that would be too large.
FittedPhotos fit_photos(const std::vector<const DecodedPhoto*>& photos, const Canvas& canvas, int threads);

}  // namespace lensbox
