// A tensor of boxes or of numbers as the kernels see it: raw memory, no ATen. Every leading position is a
// "slot"; slots are counted in row-major order of the leading dimensions, whatever the strides.
#pragma once

#include <cstddef>
#include <cstdint>

#include "box_math.h"
#include "host_device.h"

namespace lensbox {

enum class DType : int32_t { kFloat64, kFloat32, kFloat16, kBFloat16, kUInt8, kInt16, kInt32, kInt64, kBool };

constexpr size_t kMaxSlotDims = 8;

struct SlotView {
  void* data = nullptr;
  DType dtype = DType::kFloat32;
  int32_t ndim = 0;                    // leading dimensions left after merging adjacent ones
  int64_t sizes[kMaxSlotDims] = {};    // outermost first
  int64_t strides[kMaxSlotDims] = {};  // in elements; 0 where broadcast
  int64_t last_stride = 1;             // between the four coordinates of a box; unused for numbers
  // Slots follow each other without gaps and the address is aligned for one vector load of a slot.
  bool packed = false;

  LENSBOX_HOST_DEVICE int64_t offset(int64_t slot) const {
    int64_t offset = 0;
    for (int32_t d = ndim - 1; d > 0; --d) {
      const int64_t quotient = slot / sizes[d];
      offset += (slot - quotient * sizes[d]) * strides[d];
      slot = quotient;
    }
    return ndim > 0 ? offset + slot * strides[0] : 0;
  }
};

// boxes1 [batch, rows, 4] and boxes2 [batch, columns, 4]; their GIoU is [batch, rows, columns].
struct PairwiseProblem {
  SlotView boxes1, boxes2;
  int64_t batch, rows, columns;
};

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
