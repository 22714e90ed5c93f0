#pragma once

#include <lensbox/image_view.h>

#include <cstddef>
#include <cstdint>
#include <string>

// Frames without any header, one after another, rows without gaps.
struct RawFormat {
  int64_t width;
  int64_t height;
  lensbox::PixelFormat pixels;

  // Bytes of a frame.
  size_t frame_size() const;
  // A frame in memory.
  lensbox::ImageView view(const uint8_t* frame) const;
  // As it is given: "640x480 gray8".
  std::string text() const;

 private:
  int64_t stride() const;
  int64_t chroma_stride() const;
};

// Of the two values of --raw, as "640x480" and "gray8". Throws UsageError.
RawFormat parse_raw_format(const std::string& size, const std::string& pixels);
