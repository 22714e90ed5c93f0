#pragma once

#include <array>

namespace lensbox {

// A box as x1, y1, x2, y2 in pixels of the image it was found in.
using Box = std::array<float, 4>;

struct Detection {
  Box box;
  float score;  // 0..1
};

}  // namespace lensbox
