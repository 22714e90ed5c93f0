#pragma once

#include <array>
#include <cstdint>
#include <memory>

namespace lensbox {

// An image in memory: uint8 [height, width, channels]. Copies share the memory.
struct Pixels {
  std::shared_ptr<uint8_t[]> memory;
  uint8_t* data = nullptr;  // the first byte of the uppermost row, in `memory`
  int64_t width = 0;        // pixels
  int64_t height = 0;
  int64_t channels = 0;  // 1 gray, 3 RGB, 4 RGBA; a byte each, side by side
  int64_t stride = 0;    // bytes from the start of a row to the start of the next row

  uint8_t* row(int64_t y) const { return data + y * stride; }
};

// A photograph, perhaps at less than full size. Boxes found in it are in pixels of the whole photograph,
// upright, at full size.
struct DecodedPhoto {
  Pixels pixels;
  int64_t width = 0;  // of the whole photograph
  int64_t height = 0;
  std::array<float, 4> window{};  // x1, y1, x2, y2: the part of the photograph that the pixels show
};

}  // namespace lensbox
