// The arguments of the kernels: raw memory, no ATen. Every leading position of a tensor of boxes or numbers
// is a "slot"; slots are counted in row-major order of the leading dimensions, whatever the strides.
#pragma once

#include <cstddef>
#include <cstdint>

#include "box_math.h"
#include "host_device.h"

// A function of liblensbox_kernels: a C name, which that library exports where it is a file of its own.
#ifdef LENSBOX_SHARED_KERNELS
#define LENSBOX_KERNEL extern "C" __attribute__((visibility("default")))
#else
#define LENSBOX_KERNEL extern "C"
#endif

namespace lensbox {

enum class DType : int32_t { kFloat64, kFloat32, kFloat16, kBFloat16, kUInt8, kInt16, kInt32, kInt64, kBool };

// A type as a function argument.
template <typename T>
struct Type {
  using type = T;
};

// Call body with the Type that `dtype` stands for. Hosts and devices have types of their own for 16 bits.
// (The pragma lets this function take a host lambda here and a device lambda there.)
#ifdef __CUDACC__
#pragma nv_exec_check_disable
#endif
template <typename Half, typename BFloat16, typename Body>
LENSBOX_HOST_DEVICE void with_type_of(DType dtype, const Body& body) {
  switch (dtype) {
    case DType::kFloat64:
      return body(Type<double>{});
    case DType::kFloat32:
      return body(Type<float>{});
    case DType::kFloat16:
      return body(Type<Half>{});
    case DType::kBFloat16:
      return body(Type<BFloat16>{});
    case DType::kUInt8:
      return body(Type<uint8_t>{});
    case DType::kInt16:
      return body(Type<int16_t>{});
    case DType::kInt32:
      return body(Type<int32_t>{});
    case DType::kInt64:
      return body(Type<int64_t>{});
    case DType::kBool:
      return body(Type<bool>{});
  }
}

constexpr size_t kMaxSlotDims = 8;

struct SlotView {
  void* data = nullptr;
  DType dtype = DType::kFloat32;
  int32_t ndim = 0;                    // leading dimensions left after merging adjacent ones
  int64_t sizes[kMaxSlotDims] = {};    // outermost first
  int64_t strides[kMaxSlotDims] = {};  // in elements; 0 in a broadcast dimension
  int64_t last_stride = 1;             // between the four coordinates of a box; unused for numbers
  // Slots follow each other without gaps and the address is aligned for one vector load of a slot.
  bool packed = false;

  // Return whether there is anything to read or write; the view of a gradient that nobody asked for has none.
  LENSBOX_HOST_DEVICE bool exists() const { return data != nullptr; }

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

// View numbers that follow each other in memory: `count` slots of `width` numbers, 4 for boxes, else 1.
inline SlotView packed_slots(const void* data, DType dtype, int64_t count, int64_t width) {
  SlotView view;
  view.data = const_cast<void*>(data);  // kernels write to outputs only
  view.dtype = dtype;
  view.ndim = 1;
  view.sizes[0] = count;
  view.strides[0] = width;
  view.packed = reinterpret_cast<uintptr_t>(data) % 16 == 0;
  return view;
}

// boxes1 [batch, rows, 4] and boxes2 [batch, columns, 4]; their GIoU is [batch, rows, columns].
struct PairwiseProblem {
  SlotView boxes1, boxes2;
  int64_t batch, rows, columns;
};

struct MaskedProblem {
  SlotView pred, target;  // [slots] of four coordinates
  SlotView weight;  // [slots] where is_weighted; otherwise a slot counts once unless y2 of its target is 0
  bool is_weighted;
  int64_t slots;
  double eps;
  bool in_double;  // the arithmetic, and the dtype of the loss
};

struct MaskedGradients {
  SlotView pred, target, weight;
};

struct JaggedProblem {
  SlotView pred;     // [images, slots]
  SlotView targets;  // [targets]
  SlotView offsets;  // [images + 1] int64 or int32; image i has the targets offsets[i] to offsets[i + 1]
  int64_t images, slots, target_count;
  double eps;
  bool in_double;  // the arithmetic, and the dtype of the loss
};

// Call body(0.0) for arithmetic in double, else body(0.0f).
template <typename Body>
void with_math(bool in_double, const Body& body) {
  in_double ? body(double{}) : body(float{});
}

// The most candidates of an image, on every device: the time of a call grows with candidates times kept ones.
constexpr int64_t kMaxCandidates = int64_t{1} << 17;

struct NmsProblem {
  SlotView boxes;       // [batch, per_image] slots of four coordinates
  SlotView scores;      // [batch, per_image]
  SlotView categories;  // [batch, per_image] int64, where has_categories
  bool has_categories;
  int64_t batch, per_image;
  double iou_threshold, score_threshold;
  int64_t max_candidates, max_detections;
  // Contiguous outputs [batch, max_detections], in the dtypes of boxes and scores.
  SlotView out_boxes, out_scores;
  int64_t* out_indices;
  int32_t* out_counts;  // [batch]
};

// The targets [first, first + count) of one image.
struct Segment {
  int64_t first, count;
};

// Return whether the offsets of an image follow the rules: start at 0, never fall, end at the number of
// targets, and give no image more targets than slots. A segment that breaks a rule must not be read.
LENSBOX_HOST_DEVICE bool is_valid_segment(int64_t image, int64_t first, int64_t end, int64_t images,
                                          int64_t slots, int64_t targets) {
  return (image > 0 || first == 0) && (image < images - 1 || end == targets) && first >= 0 && first <= end &&
         end <= targets && end - first <= slots;
}

}  // namespace lensbox
