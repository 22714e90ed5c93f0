#pragma once

#include <lensbox/detection.h>

#include <cstdint>
#include <vector>

namespace lensbox {

// What was found in a file, best first, in pixels of the photograph of width x height.
struct FileDetections {
  int64_t width;
  int64_t height;
  std::vector<Detection> detections;
};

}  // namespace lensbox
