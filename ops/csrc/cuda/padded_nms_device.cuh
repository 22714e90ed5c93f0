// The order of scores and the writing of detections, for all NMS kernels.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "../box_math.h"
#include "launchers.h"
#include "memory.cuh"

namespace lensbox {

// The largest number of candidates of an image that a block ranks itself, one a thread.
constexpr int kMaxNmsThreads = 1024;

inline int64_t candidates_of(const NmsProblem& problem) {
  return std::min(problem.per_image, problem.max_candidates);
}

// The order of the boxes of some images, by score. Without slots, each block ranks its image's boxes itself.
struct NmsOrder {
  const int32_t* slots = nullptr;  // [images, per_image] image * per_image + index
  int64_t first_image = 0, images = 0;
};

// Suppress and write, for images that need no order or that have one.
cudaError_t launch_nms(const NmsProblem& problem, const NmsOrder& order, cudaStream_t stream);

// Return an unsigned integer with the order of the score. -0 and +0 become equal. Only a NaN can become 0,
// and a NaN is never a candidate, so 0 can stand for "none".
__device__ __forceinline__ uint32_t order_bits(float score) {
  const uint32_t bits = __float_as_uint(score + 0.0f);
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

__device__ __forceinline__ uint64_t order_bits(double score) {
  const uint64_t bits = static_cast<uint64_t>(__double_as_longlong(score + 0.0));
  return bits & 0x8000000000000000ull ? ~bits : bits | 0x8000000000000000ull;
}

// Return the order bits of a score above the threshold, otherwise 0. Score is float, or double for double
// scores.
template <typename Score>
__device__ auto candidate_bits(const NmsProblem& problem, int64_t slot) {
  const Score score = load_number<Score>(problem.scores, slot);
  using Bits = decltype(order_bits(score));
  return score > static_cast<Score>(problem.score_threshold) ? order_bits(score) : Bits{0};
}

// Return whether a box needs huge_iou_exceeds(), by its nms_area().
template <typename T>
__device__ __forceinline__ bool is_huge(T area) {
  return area == T(INFINITY);
}

// Decide pairs with a huge box. Not inlined, because such pairs are rare and need arithmetic in double. Boxes
// are passed by value: a box whose address is taken could not stay in registers.
template <typename T>
__device__ __noinline__ bool removes_as_huge(Box<T> a, Box<T> b, T threshold) {
  return huge_iou_exceeds(a, b, threshold);
}

// Copy `count` numbers of a slot as they are.
__device__ inline void copy_slot(const SlotView& from, int64_t from_slot, const SlotView& to, int64_t to_slot,
                                 int count) {
  const int64_t offset = from.offset(from_slot);
  with_storage(from.dtype, [&](auto tag) {
    using Storage = typename decltype(tag)::type;
    const Storage* in = static_cast<const Storage*>(from.data) + offset;
    Storage* out = static_cast<Storage*>(to.data) + to_slot * count;
    for (int i = 0; i < count; ++i) {
      out[i] = in[i * from.last_stride];
    }
  });
}

// Write detection number `rank` of an image: its box number `index`.
__device__ __forceinline__ void write_detection(const NmsProblem& problem, int64_t image, int64_t rank,
                                                int64_t index) {
  const int64_t out = image * problem.max_detections + rank;
  const int64_t in = image * problem.per_image + index;
  copy_slot(problem.boxes, in, problem.out_boxes, out, 4);
  copy_slot(problem.scores, in, problem.out_scores, out, 1);
  problem.out_indices[out] = index;
}

// Zero detection number `rank`.
__device__ __forceinline__ void write_padding(const NmsProblem& problem, int64_t image, int64_t rank) {
  const int64_t out = image * problem.max_detections + rank;
  store_box(problem.out_boxes, out, Box<float>{0, 0, 0, 0});
  store_number(problem.out_scores, out, 0.0f);
  problem.out_indices[out] = -1;
}

// Call body(math, score) with the arithmetic types of the problem, as values.
template <typename Body>
auto with_math_types(const NmsProblem& problem, const Body& body) {
  const bool double_scores = problem.scores.dtype == DType::kFloat64;
  if (problem.boxes.dtype == DType::kFloat64) {
    return double_scores ? body(double{}, double{}) : body(double{}, float{});
  }
  return double_scores ? body(float{}, double{}) : body(float{}, float{});
}

}  // namespace lensbox
