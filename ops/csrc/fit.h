// The position of an image in a canvas. The kernels and the C++ runtime share this arithmetic.
#pragma once

#include <cmath>
#include <cstdint>

#include "host_device.h"

namespace lensbox {

// The longest sides of an image and of a canvas, in pixels. float32 holds all positions in such an image.
constexpr int64_t kLongestSide = int64_t{1} << 24;
constexpr int64_t kLongestCanvas = int64_t{1} << 14;

// How an image is scaled to a canvas.
//
//   kLetterbox  the image fits into the canvas: aspect kept, centred, with padding
//   kStretch    each side fills the canvas
//   kCrop       the image covers the canvas: aspect kept, and the canvas shows its centre
//   kUltralytics        a letterbox with the sides of ultralytics' LetterBox
//   kUltralyticsShrink  the same; an image that fits into the canvas keeps its size
enum class FitMode : int32_t { kLetterbox, kStretch, kCrop, kUltralytics, kUltralyticsShrink };

// The rectangle of a scaled image in a canvas, in canvas pixels; left and top are not above 0 where the
// rectangle is larger than the canvas.
struct Fit {
  int64_t width, height, left, top;
};

// The outputs [begin, begin + count) of an axis, which the canvas shows from `offset` on.
struct VisibleRange {
  int64_t begin, count, offset;
};

// Return the part of an axis of `whole` outputs that a canvas shows. An odd pixel of padding lies below or to
// the right, as by ultralytics' round(half - 0.1) and round(half + 0.1). What a canvas cuts off is halved,
// and rounded half to even, as torchvision's CenterCrop does.
LENSBOX_HOST_DEVICE VisibleRange visible_range(int64_t whole, int64_t canvas) {
  if (whole <= canvas) return {0, whole, (canvas - whole) / 2};
  const int64_t beyond = whole - canvas;
  return {(beyond + (beyond / 2) % 2) / 2, canvas, 0};
}

// Return a / b, rounded half up; both are positive.
LENSBOX_HOST_DEVICE int64_t rounded_quotient(int64_t a, int64_t b) {
  return (2 * a + b) / (2 * b);
}

// Fit an image to a canvas. The side that decides fills the canvas. The other side is computed in integers,
// so that every runtime agrees: rounded half up for a letterbox; rounded down for a crop, as torchvision's
// Resize does. Only ultralytics' LetterBox has a scale in float64, and sides rounded half to even. No side is
// shorter than 1, or longer than kLongestSide and kLongestCanvas.
LENSBOX_HOST_DEVICE Fit fit_to_canvas(int64_t width, int64_t height, int64_t canvas_width,
                                      int64_t canvas_height, FitMode mode = FitMode::kLetterbox) {
  Fit fit = {canvas_width, canvas_height, 0, 0};
  if (mode == FitMode::kStretch) return fit;
  const bool is_wide = width * canvas_height >= height * canvas_width;
  if (mode == FitMode::kUltralytics || mode == FitMode::kUltralyticsShrink) {
    const double across = static_cast<double>(canvas_width) / static_cast<double>(width);
    const double down = static_cast<double>(canvas_height) / static_cast<double>(height);
    double scale = across < down ? across : down;
    if (mode == FitMode::kUltralyticsShrink && scale > 1.0) scale = 1.0;
    fit.width = static_cast<int64_t>(std::rint(static_cast<double>(width) * scale));
    fit.height = static_cast<int64_t>(std::rint(static_cast<double>(height) * scale));
  } else if (mode == FitMode::kCrop) {
    (is_wide ? fit.width : fit.height) =
        is_wide ? width * canvas_height / height : height * canvas_width / width;
  } else if (is_wide) {
    fit.height = rounded_quotient(height * canvas_width, width);
  } else {
    fit.width = rounded_quotient(width * canvas_height, height);
  }
  if (fit.width < 1) fit.width = 1;
  if (fit.height < 1) fit.height = 1;
  const VisibleRange columns = visible_range(fit.width, canvas_width),
                     rows = visible_range(fit.height, canvas_height);
  fit.left = columns.offset - columns.begin;
  fit.top = rows.offset - rows.begin;
  return fit;
}

}  // namespace lensbox
