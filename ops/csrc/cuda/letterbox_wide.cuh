// `letterbox` where a single window is more than shared memory holds: reductions by some hundreds and more.
#pragma once

#include "letterbox_tile.cuh"
#include "warp.cuh"

namespace lensbox {

// A block takes one output at a time, every `blocks`-th of the image. Its warps share the pixels of the
// second axis, the lanes of a warp those of the first; nothing is kept, weights are computed where they are
// used.
__device__ __forceinline__ void letterbox_wide(const ImageTask& task, const Canvases& out, uint8_t* canvas,
                                               int32_t block, int32_t blocks, uint8_t* shared) {
  fill_padding(task, out, canvas, block, blocks);
  WideMemory& memory = *reinterpret_cast<WideMemory*>(shared);
  const int32_t lane = static_cast<int32_t>(threadIdx.x % 32), warp = static_cast<int32_t>(threadIdx.x / 32);
  const int64_t plane_bytes = int64_t{out.height} * out.width;
  const int64_t first_step = task.first_is_columns ? 1 : out.width;
  const int64_t second_step = task.first_is_columns ? out.width : 1;
  const int32_t outputs = task.first.output * task.second.output;
  for (int32_t output = block; output < outputs; output += blocks) {
    const int32_t second = output / task.first.output, first = output - second * task.first.output;
    const FilterWindow across = filter_window(first, task.first.input, task.first.output);
    const FilterWindow down = filter_window(second, task.second.input, task.second.output);
    if (threadIdx.x == 0) memory.areas[0] = filter_area(across);
    if (threadIdx.x == 32) memory.areas[1] = filter_area(down);
    uint8_t* const to =
        canvas + (task.first.offset + first) * first_step + (task.second.offset + second) * second_step;
    for (int32_t plane = 0; plane < task.planes; ++plane) {
      if (threadIdx.x == 0) memory.total = kHalfWeight;
      __syncthreads();
      uint32_t sum = 0;
      for (int32_t row = warp; row < down.count; row += kLetterboxThreads / 32) {
        uint32_t part = 0;
        for (int32_t i = lane; i < across.count; i += 32) {
          part += static_cast<uint32_t>(fixed_weight(filter_height(across, i), memory.areas[0])) *
                  pixel_at(task, plane, across.first + i, down.first + row);
        }
        for (int distance = 16; distance > 0; distance /= 2) {
          part += __shfl_down_sync(kFullWarp, part, distance);
        }
        sum += static_cast<uint32_t>(fixed_weight(filter_height(down, row), memory.areas[1])) *
               filtered_byte(static_cast<int32_t>(kHalfWeight + part));
      }
      if (lane == 0) atomicAdd(&memory.total, sum);
      __syncthreads();
      if (threadIdx.x == 0) {
        const uint8_t byte = filtered_byte(static_cast<int32_t>(memory.total));
        to[plane * plane_bytes] = byte;
        for (int32_t copy = 1; task.planes == 1 && copy < out.channels; ++copy)
          to[copy * plane_bytes] = byte;
      }
    }
    __syncthreads();
  }
}

}  // namespace lensbox
