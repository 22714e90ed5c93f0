// How the threads of `fit` divide two nested loops, and how a block writes padding and geometry.
#pragma once

#include "fit_plan.h"

namespace lensbox {

// The threads of a block in rows of 2^n: adjacent threads take adjacent items of the inner dimension.
struct ThreadRows {
  int32_t inner, inner_step, outer, outer_step;
};

// Return rows of at least `items` threads, or of 2^longest_bits threads if `items` is larger.
__device__ __forceinline__ ThreadRows thread_rows(int32_t items, int32_t longest_bits) {
  const int32_t bits = min(32 - __clz(items - 1), longest_bits);
  const int32_t thread = static_cast<int32_t>(threadIdx.x);
  return {thread & ((1 << bits) - 1), 1 << bits, thread >> bits, kFitThreads >> bits};
}

constexpr int32_t kWarpBits = 5;
constexpr int32_t kBlockBits = 7;
static_assert(1 << kBlockBits == kFitThreads);

// Return the axis of the columns or the rows, independent of the order of the passes. (A reference to one of
// the task's two axes, chosen at run time, would put both axes into local memory.)
__device__ __forceinline__ PassAxis canvas_axis(const ImageTask& task, bool columns) {
  PassAxis axis = task.second;
  if (task.first_is_columns == columns) axis = task.first;
  return axis;
}

// Write the `count` lowest bytes of a word, `step` bytes apart.
__device__ __forceinline__ void store_bytes(uint8_t* to, uint32_t bytes, int32_t count, int32_t step) {
  if (count >= 4 && step == 1 && (reinterpret_cast<uintptr_t>(to) & 3) == 0) {
    *reinterpret_cast<uint32_t*>(to) = bytes;
    return;
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if (i < count) to[i * step] = static_cast<uint8_t>(bytes >> 8 * i);
  }
}

// Fill the block's share of the canvas outside the image. A thread writes four adjacent pixels, and adjacent
// threads write adjacent groups of four. If the image begins or ends within the four, the thread writes
// single pixels.
__device__ __forceinline__ void fill_padding(const ImageTask& task, const Canvases& out, uint8_t* canvas,
                                             int32_t block, int32_t blocks) {
  const PassAxis across = canvas_axis(task, true), down = canvas_axis(task, false);
  if (across.output == out.width && down.output == out.height) return;
  const uint32_t four = 0x01010101u * out.fill;
  const int32_t image_end = across.offset + across.output;
  const int32_t begin = static_cast<int32_t>(int64_t{out.height} * block / blocks);
  const int32_t end = static_cast<int32_t>(int64_t{out.height} * (block + 1) / blocks);
  const int32_t groups = pieces(out.width, 4);
  const ThreadRows threads = thread_rows(groups, kBlockBits);
  for (int32_t row = begin + threads.outer; row < end; row += threads.outer_step) {
    const bool beside = row >= down.offset && row < down.offset + down.output;
    for (int32_t group = threads.inner; group < groups; group += threads.inner_step) {
      const int32_t column = 4 * group, count = min(4, out.width - column);
      const bool touches = beside && column < image_end && column + count > across.offset;
      for (int32_t channel = 0; channel < out.channels; ++channel) {
        uint8_t* const to = canvas + (channel * out.height + row) * out.width + column;
        if (!touches) {
          store_bytes(to, four, count, 1);
          continue;
        }
        for (int32_t i = 0; i < count; ++i) {
          if (column + i < across.offset || column + i >= image_end) to[i] = out.fill;
        }
      }
    }
  }
}

__device__ __forceinline__ void write_geometry_of(const ImageTask& task, float* geometry) {
  const PassAxis across = canvas_axis(task, true), down = canvas_axis(task, false);
  ImageView image = {};
  image.width = across.input;
  image.height = down.input;
  write_geometry(image, Fit{across.whole, down.whole, across.offset - across.begin, down.offset - down.begin},
                 geometry);
}

}  // namespace lensbox
