// How offsets divide packed targets among images, the same on CPU and CUDA.
#pragma once

#include <cstdint>

#include "host_device.h"

namespace lensbox {

// The targets [first, first + count) of one image.
struct Segment {
  int64_t first, count;
};

// Offsets that start at 0, never fall, end at the number of targets and give no image more than it has slots.
// A segment that breaks one of these rules must not be read.
LENSBOX_HOST_DEVICE bool is_valid_segment(int64_t image, int64_t first, int64_t end, int64_t images,
                                          int64_t slots, int64_t targets) {
  return (image > 0 || first == 0) && (image < images - 1 || end == targets) && first >= 0 && first <= end &&
         end <= targets && end - first <= slots;
}

}  // namespace lensbox
