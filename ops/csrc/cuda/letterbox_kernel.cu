#include "launch.h"
#include "letterbox_kernel.h"
#include "letterbox_tile.cuh"
#include "letterbox_wide.cuh"

namespace lensbox {
namespace {

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
