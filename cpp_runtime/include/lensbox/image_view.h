#pragma once

#include <lensbox/api.h>

#include <cstdint>

namespace lensbox {

// Larger images are refused: decoding and preprocessing may take 20 bytes of memory for each pixel.
inline constexpr int64_t kMaxImagePixels = int64_t{1} << 26;  // 8192 x 8192

// The layout of a frame's bytes. The colors are sRGB, as in image files, from 0 to 255.
enum class PixelFormat {
  kGray8,  // a byte a pixel
  kRgb8,   // three bytes a pixel: red, green, blue
  kBgr8,   // three bytes a pixel: blue, green, red; OpenCV's order
  // A plane of luma, a byte a pixel, and a plane of chroma, a pair of bytes (Cb, Cr) for 2 x 2 pixels, as
  // cameras and video decoders give it. Read as ITU-R BT.601 with limited range (luma 16..235,
  // chroma 16..240): core/images/frame.cpp has the formulas. An odd last row or column has pairs of
  // its own. For a gray canvas only the plane of luma is read.
  kNv12,
  // Four bytes for two pixels beside each other: luma, Cb, luma, Cr; what USB cameras give. Read as kNv12 is.
  // An odd last column has four bytes, of which the second luma is not used.
  kYuyv
};

// A PixelFormat without a default: code that leaves it out does not compile.
class GivenFormat {
 public:
  GivenFormat(PixelFormat format) : format_(format) {}
  operator PixelFormat() const { return format_; }

 private:
  PixelFormat format_;
};

// A frame in the caller's memory, such as a camera's. The memory must stay unchanged while a function of this
// library runs.
struct ImageView {
  const uint8_t* data = nullptr;  // the first byte of the uppermost row
  int64_t width = 0;              // pixels
  int64_t height = 0;
  // Bytes from the start of a row to the start of the next row. Rows may be padded. Negative strides (rows
  // from bottom to top) are refused.
  int64_t stride = 0;
  GivenFormat format;

  // For kNv12 only: (width + 1) / 2 pairs in (height + 1) / 2 rows.
  const uint8_t* chroma = nullptr;
  int64_t chroma_stride = 0;  // bytes, likewise
};

}  // namespace lensbox
