#include "launch.h"
#include "letterbox_kernel.h"
#include "letterbox_tile.cuh"
#include "letterbox_wide.cuh"

namespace lensbox {
namespace {

// What the kernel's parts that know of columns and rows need. (References to one axis or the other would put
// both into local memory.)
struct CanvasAxis {
  int32_t input, output, offset;
};

__device__ __forceinline__ CanvasAxis canvas_axis(const ImageTask& task, bool first) {
  return {first ? task.first.input : task.second.input, first ? task.first.output : task.second.output,
          first ? task.first.offset : task.second.offset};
}

// A block writes its share of the canvas's rows where no image is: adjacent threads adjacent pixels.
__device__ __forceinline__ void fill_padding(const ImageTask& task, const Canvases& out, uint8_t* canvas,
                                             int32_t block, int32_t blocks) {
  const CanvasAxis across = canvas_axis(task, task.first_is_columns);
  const CanvasAxis down = canvas_axis(task, !task.first_is_columns);
  if (across.output == out.width && down.output == out.height) return;
  const int32_t begin = static_cast<int32_t>(int64_t{out.height} * block / blocks);
  const int32_t end = static_cast<int32_t>(int64_t{out.height} * (block + 1) / blocks);
  const ThreadRows threads = thread_rows(out.width, kBlockBits);
  for (int32_t row = begin + threads.outer; row < end; row += threads.outer_step) {
    const bool beside = row >= down.offset && row < down.offset + down.output;
    for (int32_t column = threads.inner; column < out.width; column += threads.inner_step) {
      if (beside && column >= across.offset && column < across.offset + across.output) continue;
      for (int32_t channel = 0; channel < out.channels; ++channel) {
        canvas[(int64_t{channel} * out.height + row) * out.width + column] = out.fill;
      }
    }
  }
}

__device__ __forceinline__ void write_task_geometry(const ImageTask& task, float* geometry) {
  const CanvasAxis across = canvas_axis(task, task.first_is_columns);
  const CanvasAxis down = canvas_axis(task, !task.first_is_columns);
  ImageView image = {};
  image.width = across.input;
  image.height = down.input;
  write_geometry(image, Fit{across.output, down.output, across.offset, down.offset}, geometry);
}

// The blocks from an image's first_block on are its tiles; the first also writes the geometry.
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
  if (block == 0 && threadIdx.x == 0) write_task_geometry(task, out.geometry + 6 * index);
  fill_padding(task, out, canvas, block, blocks);
  if (task.tile > 0) {
    letterbox_tile(task, out, canvas, block, memory);
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

// Images of one launch: few, whose parameters are short; or as many as 32,764 bytes of them describe.
constexpr int kFewImages = 4;
constexpr int kMoreImages = 64;
constexpr int kMostImages = 500;
static_assert(sizeof(LetterboxBatch<kMostImages>) <= 32764);

}  // namespace

cudaError_t launch_letterbox(const ImageView* images, int64_t count, const Canvases& out,
                             cudaStream_t stream) {
  for (int64_t first = 0; first < count; first += kMostImages) {
    const int32_t part = static_cast<int32_t>(std::min<int64_t>(count - first, kMostImages));
    const int32_t begin = static_cast<int32_t>(first);
    const cudaError_t error = part <= kFewImages    ? launch<kFewImages>(images, begin, part, out, stream)
                              : part <= kMoreImages ? launch<kMoreImages>(images, begin, part, out, stream)
                                                    : launch<kMostImages>(images, begin, part, out, stream);
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

}  // namespace lensbox
