// The colors of a decoded JPEG file, from planes as they are in the file, for the CPU and a GPU. Equal to
// libjpeg-turbo to the bit: its "fancy" upsampling (jdsample.c) and its color conversion (jdcolor.c).
#pragma once

#include <cstdint>

#include "host_device.h"

namespace lensbox {

// The planes of a YCbCr image in memory, rows of each without gaps:
//
//   pixels   luma at first; then red      height x width
//            anything;      then green    height x width
//            anything;      then blue     height x width
//   chroma   [0] Cb, [1] Cr               ceil(height / down) x ceil(width / across)
struct JpegColors {
  uint8_t* pixels;
  const uint8_t* chroma[2];
  int32_t width, height;
  int32_t across, down;  // pixels of a chroma sample, 1 or 2
};

// Return the chroma of a pixel. Where a sample has two pixels along an axis, the nearer sample counts 3 and
// the next one beyond the pixel counts 1; beyond an edge, the sample at the edge:
//
//   samples |   s0    |   s1    |
//   pixels  |  0 |  1 |  2 |  3 |     pixel 1: 3/4 s0 + 1/4 s1; pixel 2: 3/4 s1 + 1/4 s0
//
// The bias alternates, so that rounding does not make colors brighter.
LENSBOX_HOST_DEVICE int32_t jpeg_chroma(const JpegColors& image, const uint8_t* plane, int32_t x, int32_t y) {
  const int32_t width = (image.width + image.across - 1) / image.across;
  const int32_t height = (image.height + image.down - 1) / image.down;
  const int32_t column = x / image.across, row = y / image.down;
  const uint8_t* const near = plane + int64_t{row} * width;
  const bool is_plain = image.across == 2 && width <= 2;  // libjpeg repeats samples of so few columns
  if (is_plain || (image.across == 1 && image.down == 1)) return near[column];

  const uint8_t* far = near;
  if (image.down == 2) {
    const int32_t wanted = row + 2 * (y % 2) - 1;
    far = plane + int64_t{wanted < 0 ? 0 : wanted >= height ? height - 1 : wanted} * width;
  }
  if (image.across == 1) return (3 * near[column] + far[column] + 1 + y % 2) >> 2;
  const int32_t wanted = column + 2 * (x % 2) - 1;
  const int32_t beside = wanted < 0 ? 0 : wanted >= width ? width - 1 : wanted;
  if (image.down == 1) return (3 * near[column] + near[beside] + 1 + x % 2) >> 2;
  return (3 * (3 * near[column] + far[column]) + 3 * near[beside] + far[beside] + 8 - x % 2) >> 4;
}

LENSBOX_HOST_DEVICE uint8_t jpeg_level(int32_t level) {
  return static_cast<uint8_t>(level < 0 ? 0 : level > 255 ? 255 : level);
}

// Turn the luma of a pixel into red, green and blue. Factors are those of JFIF, times 2^16.
LENSBOX_HOST_DEVICE void jpeg_convert(const JpegColors& image, int32_t x, int32_t y) {
  constexpr int32_t kHalf = 1 << 15;
  const int64_t plane = int64_t{image.height} * image.width;
  uint8_t* const pixel = image.pixels + int64_t{y} * image.width + x;
  const int32_t luma = *pixel;
  const int32_t cb = jpeg_chroma(image, image.chroma[0], x, y) - 128;
  const int32_t cr = jpeg_chroma(image, image.chroma[1], x, y) - 128;
  pixel[0] = jpeg_level(luma + ((91881 * cr + kHalf) >> 16));
  pixel[plane] = jpeg_level(luma + ((-22554 * cb - 46802 * cr + kHalf) >> 16));
  pixel[2 * plane] = jpeg_level(luma + ((116130 * cb + kHalf) >> 16));
}

}  // namespace lensbox
