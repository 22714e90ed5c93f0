#include "device.cuh"
#include "launch.h"
#include "launchers.h"
#include "letterbox_tile.cuh"

namespace lensbox {
namespace {

// Compute an image whose windows are larger than shared memory: reductions by some hundreds and more.
//
// A block computes one output at a time, every `blocks`-th output of the image. The warps of the block share
// the window's pixels along the second axis; the lanes of a warp share the pixels along the first axis.
// Nothing is cached: each thread computes the weights that it uses.
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

// The blocks of an image, from first_block on, compute one tile each; the first block also writes the
// geometry.
template <int kCapacity>
__global__ void __launch_bounds__(kLetterboxThreads, kLetterboxBlocksPerSm)
    letterbox_kernel(const __grid_constant__ LetterboxBatch<kCapacity> batch) {
  extern __shared__ __align__(16) uint8_t memory[];
  const int32_t at = static_cast<int32_t>(blockIdx.x);
  int32_t image = 0;
  for (int32_t beyond = batch.images; beyond - image > 1;) {
    const int32_t middle = (image + beyond) / 2;
    (batch.tasks[middle].first_block <= at ? image : beyond) = middle;
  }
  const ImageTask task = batch.tasks[image];
  const int32_t blocks =
      (image + 1 < batch.images ? batch.tasks[image + 1].first_block : static_cast<int32_t>(gridDim.x)) -
      task.first_block;
  const int32_t block = at - task.first_block;
  const Canvases out = batch.out;
  const int64_t index = batch.first_image + image;
  uint8_t* const canvas = out.pixels + index * out.channels * out.height * out.width;
  if (block == 0 && threadIdx.x == 0) write_geometry_of(task, out.geometry + 6 * index);
  if (task.tile > 0) {
    letterbox_tile(task, out, canvas, block, blocks, memory);
  } else {
    letterbox_wide(task, out, canvas, block, blocks, memory);
  }
}

template <int kCapacity>
cudaError_t launch(const ImageView* images, int32_t first, int32_t count, const Canvases& out,
                   cudaStream_t stream) {
  LetterboxBatch<kCapacity> batch;
  batch.out = out;
  batch.first_image = first;
  batch.images = count;
  const int32_t per_sm =
      device_attribute(cudaDevAttrMaxSharedMemoryPerMultiprocessor) / (kLetterboxShared + 1024);
  const int32_t at_once = multiprocessors() * std::clamp(per_sm, 1, kLetterboxBlocksPerSm);
  int32_t shared_bytes = 0;
  const int32_t blocks = plan_letterbox(images + first, count, out, at_once, batch.tasks, &shared_bytes);
  letterbox_kernel<kCapacity><<<blocks, kLetterboxThreads, shared_bytes, stream>>>(batch);
  return cudaGetLastError();
}

// The number of images of one launch: few images with short parameters, or as many images as 4,096 bytes of
// parameters describe, the limit that every driver accepts.
constexpr int kFewImages = 4;
constexpr int kMostImages = 63;
static_assert(sizeof(LetterboxBatch<kMostImages>) <= 4096);

}  // namespace

cudaError_t lensbox_cuda_letterbox(const ImageView* images, int64_t count, const Canvases& out,
                                   cudaStream_t stream) {
  for (int64_t first = 0; first < count; first += kMostImages) {
    const int32_t part = static_cast<int32_t>(std::min<int64_t>(count - first, kMostImages));
    const int32_t begin = static_cast<int32_t>(first);
    const cudaError_t error = part <= kFewImages ? launch<kFewImages>(images, begin, part, out, stream)
                                                 : launch<kMostImages>(images, begin, part, out, stream);
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

}  // namespace lensbox
