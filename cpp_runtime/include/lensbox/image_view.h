#pragma once

#include <cstdint>

namespace lensbox {

// How the bytes of a frame are to be read. The colors are sRGB, as in image files, from 0 to 255.
enum class PixelFormat {
  kGray8,  // a byte a pixel
  kRgb8,   // three bytes a pixel: red, green, blue
  kBgr8,   // three bytes a pixel: blue, green, red
  // A plane of luma, a byte a pixel, and a plane of chroma, a pair of bytes (Cb, Cr) for 2 x 2 pixels, as
  // cameras and video decoders give it. Read as ITU-R BT.601 with limited range (luma 16..235,
  // chroma 16..240): the formulas are in src/pixel_formats.cpp. Each pair holds for its four pixels; a pixel
  // beyond the last pair of an odd row or column has one of its own. For a gray canvas, only the plane of
  // luma is looked at.
  kNv12
};

// A frame in memory that belongs to somebody else, such as a camera: nothing is copied to make a view. The
// memory must stay as it is while a function of this library looks at the view, and no longer.
struct ImageView {
  const uint8_t* data;  // the first byte of the uppermost row
  int64_t width;        // pixels
  int64_t height;
  // Bytes from the start of a row to that of the next. Rows may be padded; the padding is not looked at.
  // Frames whose rows lie from bottom to top, with a negative stride, are refused.
  int64_t stride;
  PixelFormat format;

  // Of kNv12 alone: (width + 1) / 2 pairs in (height + 1) / 2 rows.
  const uint8_t* chroma = nullptr;
  int64_t chroma_stride = 0;  // bytes, likewise
};

}  // namespace lensbox
