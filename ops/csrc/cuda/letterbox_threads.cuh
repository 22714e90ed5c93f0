// Which items of two nested loops a thread of `letterbox` takes.
#pragma once

#include "letterbox_plan.h"

namespace lensbox {

// Threads in rows of 2^n: adjacent ones take adjacent items of the inner dimension.
struct ThreadRows {
  int32_t inner, inner_step, outer, outer_step;
};

// Rows of at least `items`, if 2^longest_bits are enough for that.
__device__ __forceinline__ ThreadRows thread_rows(int32_t items, int32_t longest_bits) {
  const int32_t bits = min(32 - __clz(items - 1), longest_bits);
  const int32_t thread = static_cast<int32_t>(threadIdx.x);
  return {thread & ((1 << bits) - 1), 1 << bits, thread >> bits, kLetterboxThreads >> bits};
}

constexpr int32_t kWarpBits = 5;
constexpr int32_t kBlockBits = 7;
static_assert(1 << kBlockBits == kLetterboxThreads);

}  // namespace lensbox
