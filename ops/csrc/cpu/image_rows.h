// The rows of an image as `fit` filters them, whatever its strides.
#pragma once

#include <cstdint>

#include "../fit_math.h"

namespace lensbox {

// Reads rows as gray levels, or as interleaved colours for a canvas of three channels.
class ImageRows {
 public:
  // Requires an image or a canvas of one channel, or holds_colours(image).
  ImageRows(const ImageView& image, int32_t canvas_channels);

  // Return whether the memory of an image is rows of interleaved colours.
  static bool holds_colours(const ImageView& image);

  int32_t width() const { return image_.width; }

  // Bytes of a pixel in a row.
  int32_t pixel_bytes() const { return pixel_bytes_; }

  // Return whether the image's memory holds the rows as they are; pixel() and pitch() require this.
  bool are_in_memory() const { return in_memory_; }
  const uint8_t* pixel(int64_t row, int64_t column) const {
    return image_.data + row * image_.row_stride + column * image_.column_stride;
  }
  int64_t pitch() const { return image_.row_stride; }

  // Return the bytes of `count` pixels of a row, without the last pixel's fourth byte: no canvas shows it,
  // and it may lie outside the image's memory.
  int64_t bytes(int64_t count) const { return count * pixel_bytes_ - (pixel_bytes_ == 4 ? 1 : 0); }

  // Write bytes(count) bytes.
  void write(int64_t row, int64_t column, int64_t count, uint8_t* out) const;

 private:
  ImageView image_;
  int32_t pixel_bytes_;
  bool in_memory_;
};

}  // namespace lensbox
