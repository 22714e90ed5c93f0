// The position of an image in a canvas. The kernels and the C++ runtime share this arithmetic.
#pragma once

#include <cstdint>

#include "host_device.h"

namespace lensbox {

// The rectangle of an image in a canvas, in canvas pixels.
struct Fit {
  int64_t width, height, left, top;
};

// Return a / b, rounded half up; both are positive.
LENSBOX_HOST_DEVICE int64_t rounded_quotient(int64_t a, int64_t b) {
  return (2 * a + b) / (2 * b);
}

// Fit an image to a canvas. The limiting side fills the canvas. The other side is rounded in integers, so
// that every runtime agrees, and a very thin image keeps one pixel. An odd pixel of padding lies below or to
// the right. Sides of the image are at most 2^24 pixels, sides of the canvas at most 2^14.
LENSBOX_HOST_DEVICE Fit fit_to_canvas(int64_t width, int64_t height, int64_t canvas_width,
                                      int64_t canvas_height) {
  Fit fit = {canvas_width, canvas_height, 0, 0};
  if (width * canvas_height >= height * canvas_width) {
    const int64_t rows = rounded_quotient(height * canvas_width, width);
    fit.height = rows < 1 ? 1 : rows;
  } else {
    const int64_t columns = rounded_quotient(width * canvas_height, height);
    fit.width = columns < 1 ? 1 : columns;
  }
  fit.left = (canvas_width - fit.width) / 2;
  fit.top = (canvas_height - fit.height) / 2;
  return fit;
}

}  // namespace lensbox
