// The arithmetic of `letterbox`, shared by the CPU and CUDA kernels: gray levels as Pillow's convert("L")
// makes them, and one pass of its resize(BILINEAR), a triangle filter that is as wide as the reduction.
//
// Weights are computed in float64, in Pillow's order of operations, and then fixed to 22 bits after the
// point. All later steps use integers, whose sums do not depend on the order, so every kernel gives the same
// bytes. Compilers must not fuse a * b + c here (-ffp-contract=off, --fmad=false).
//
// The structs at the end are the arguments of `letterbox` for its kernels: raw memory, no ATen.
#pragma once

#include <cstdint>

#include "fit.h"
#include "host_device.h"

namespace lensbox {

constexpr int kWeightBits = 22;
constexpr int32_t kHalfWeight = int32_t{1} << (kWeightBits - 1);

// ITU-R BT.601 luma in 16 bits, rounded.
LENSBOX_HOST_DEVICE uint8_t luma(uint32_t red, uint32_t green, uint32_t blue) {
  return static_cast<uint8_t>((19595 * red + 38470 * green + 7471 * blue + 32768) >> 16);
}

// The input pixels [first, first + count) that contribute to one output pixel.
struct FilterWindow {
  int32_t first, count;
  double center;  // of the output pixel, in input pixels
  double shrink;  // 1 / half the filter's width
};

// Return the window of the output pixel `index` if `input` pixels become `output`.
LENSBOX_HOST_DEVICE FilterWindow filter_window(int32_t index, int32_t input, int32_t output) {
  const double scale = static_cast<double>(input) / output;
  const double support = scale < 1.0 ? 1.0 : scale;
  const double center = (index + 0.5) * scale;
  int32_t first = static_cast<int32_t>(center - support + 0.5);
  if (first < 0) first = 0;
  int32_t end = static_cast<int32_t>(center + support + 0.5);
  if (end > input) end = input;
  return {first, end - first, center, 1.0 / support};
}

// Return the height of the triangle at the window's pixel i, not yet normalised.
LENSBOX_HOST_DEVICE double filter_height(const FilterWindow& window, int32_t i) {
  double distance = (i + window.first - window.center + 0.5) * window.shrink;
  if (distance < 0.0) distance = -distance;
  return distance < 1.0 ? 1.0 - distance : 0.0;
}

// Return the sum of the heights of a window, added in the order of its pixels.
LENSBOX_HOST_DEVICE double filter_area(const FilterWindow& window) {
  double area = 0.0;
  for (int32_t i = 0; i < window.count; ++i) {
    area += filter_height(window, i);
  }
  return area;
}

// Return the weight of a pixel; the weights of a window add up to about 2^22.
LENSBOX_HOST_DEVICE int32_t fixed_weight(double height, double area) {
  const double weight = area != 0.0 ? height / area : height;
  return static_cast<int32_t>(0.5 + weight * (1 << kWeightBits));
}

// Return whether the rows are combined before the columns. Values are rounded to bytes between the passes, so
// the order matters; this is the order of Pillow 13. (Earlier versions always combine columns first.)
LENSBOX_HOST_DEVICE bool rows_first(int64_t width, int64_t height, const Fit& fit) {
  const int64_t fewer_rows = height - fit.height;
  return fewer_rows > 0 && fewer_rows > 2 * (width - fit.width);
}

// Return the byte for a sum of weight * pixel that began with kHalfWeight.
LENSBOX_HOST_DEVICE uint8_t filtered_byte(int32_t sum) {
  const int32_t byte = sum >> kWeightBits;
  return static_cast<uint8_t>(byte < 0 ? 0 : byte > 255 ? 255 : byte);
}

// uint8 [channels, height, width], strides in bytes.
struct ImageView {
  const uint8_t* data;
  int64_t channel_stride, row_stride, column_stride;
  int32_t channels, height, width;
};

// uint8 [B, channels, height, width] and float32 [B, 6], both contiguous.
struct Canvases {
  uint8_t* pixels;
  float* geometry;
  int32_t channels, height, width;
  uint8_t fill;
};

// scale_x, scale_y, offset_x, offset_y, width, height: canvas = image * scale + offset.
LENSBOX_HOST_DEVICE void write_geometry(const ImageView& image, const Fit& fit, float* geometry) {
  geometry[0] = static_cast<float>(static_cast<double>(fit.width) / image.width);
  geometry[1] = static_cast<float>(static_cast<double>(fit.height) / image.height);
  geometry[2] = static_cast<float>(fit.left);
  geometry[3] = static_cast<float>(fit.top);
  geometry[4] = static_cast<float>(image.width);
  geometry[5] = static_cast<float>(image.height);
}

}  // namespace lensbox
