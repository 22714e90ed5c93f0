#pragma once

#include <ATen/core/Tensor.h>
#include <lensbox/api.h>
#include <lensbox/image_view.h>
#include <lensbox/reading.h>

#include <array>
#include <cstdint>
#include <filesystem>
#include <span>

namespace lensbox {

// A photograph, or a part of one, perhaps at less than full size. Boxes found in it are in pixels of the
// whole photograph, upright, at full size.
struct LENSBOX_API Photo {
  at::Tensor pixels;  // uint8 [C, h, w], C = 1, 3 or 4, on any device, with any strides
  int64_t width;      // of the whole photograph
  int64_t height;
  std::array<float, 4> window;  // x1, y1, x2, y2: what the pixels show of it

  // A whole photograph at full size. Throws InputError unless `pixels` has three dimensions.
  static Photo of(at::Tensor pixels);
};

// Reads a JPEG or PNG file for a canvas. Throws InputError as read_image does; a reduced size lifts no limit.
LENSBOX_API Photo read_photo(const std::filesystem::path& path, const ReadOptions& options = {});

// The same of a file in memory.
LENSBOX_API Photo read_photo(std::span<const uint8_t> file, const ReadOptions& options = {});

// A whole frame, for the canvas of the options. Frames of kGray8 and kRgb8 are not copied: their memory must
// stay as long as the photo. The others become RGB in memory of their own, or gray if they are kNv12 and the
// canvas is. Throws InputError for a view that breaks the rules of ImageView or has more than kMaxImagePixels
// pixels.
LENSBOX_API Photo to_photo(const ImageView& view, const ReadOptions& options = {});

}  // namespace lensbox
