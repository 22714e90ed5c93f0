#pragma once

#include <lensbox/api.h>

#include <array>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

namespace lensbox {

// A box as x1, y1, x2, y2 in pixels of the image.
using Box = std::array<float, 4>;

// The numbers of one extra of one detection, row by row; points are in pixels of the image.
using ExtraValues = std::variant<std::vector<float>, std::vector<int64_t>>;

struct Detection {
  Box box = {};
  float score = 0;                       // 0..1
  int64_t label = 0;                     // index into Metadata::classes, 0 if there are no classes
  std::vector<ExtraValues> extras = {};  // in the order of Metadata::extras
};

// The detections of an image file, best first, in pixels of the photograph of width x height.
struct FileDetections {
  int64_t width = 0;
  int64_t height = 0;
  std::vector<Detection> detections = {};
};

enum class ExtraKind {
  kPoints,  // xy in pixels
  kValues
};

// An output of the detector beside box, score and label.
struct Extra {
  std::string name = {};
  std::vector<int64_t> shape = {};  // empty: one number; of points, the last size is 2
  ExtraKind kind = ExtraKind::kValues;

  // Return the count of numbers of one detection.
  int64_t size() const {
    int64_t product = 1;
    for (const int64_t side : shape) {
      product *= side;
    }
    return product;
  }
};

}  // namespace lensbox
