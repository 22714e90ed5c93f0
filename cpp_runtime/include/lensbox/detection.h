#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

namespace lensbox {

// A box as x1, y1, x2, y2 in pixels of the image it was found in.
using Box = std::array<float, 4>;

// The numbers of one extra of one detection, row by row; points in pixels of the image.
using ExtraValues = std::variant<std::vector<float>, std::vector<int64_t>>;

struct Detection {
  Box box;
  float score;                           // 0..1
  int64_t label = 0;                     // index into the artifact's classes, 0 where there are none
  std::vector<ExtraValues> extras = {};  // in the order of the artifact's extras
};

enum class ExtraKind {
  kPoints,  // xy in pixels
  kValues
};

// What a detector gives for each detection beside box, score and label.
struct Extra {
  std::string name;
  std::vector<int64_t> shape;  // empty: one number; of points, the last is 2
  ExtraKind kind;
};

}  // namespace lensbox
