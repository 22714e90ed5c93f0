// A tensor of boxes or of numbers as the kernels see it: raw memory, no ATen. Every leading position is a
// "slot"; slots are counted in row-major order of the leading dimensions, whatever the strides.
#pragma once

#include <cstdint>

#include "box_math.h"

namespace lensbox {

enum class DType : int32_t { kFloat64, kFloat32, kFloat16, kBFloat16, kUInt8, kInt16, kInt32, kInt64, kBool };

constexpr int kMaxSlotDims = 8;

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

}  // namespace lensbox
