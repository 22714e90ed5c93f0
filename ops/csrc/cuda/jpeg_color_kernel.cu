// Upsamples chroma and converts YCbCr to RGB, for a batch of decoded JPEG files in one launch.
//
// Block (i, j) converts the rows j, j + kRowBlocks, ... of image i. Thread t of a block converts the pixels
// t, t + kThreads, ... of a row, so a warp reads and writes consecutive bytes. Each thread overwrites the
// luma of its pixel with red; no other thread reads that luma. Neighboring pixels share chroma samples, which
// the cache holds.

#include "../jpeg_color.h"
#include "launchers.h"

namespace lensbox {
namespace {

constexpr int32_t kThreads = 256;
constexpr int32_t kRowBlocks = 64;

__global__ void __launch_bounds__(kThreads) convert_jpeg_colors(const JpegColors* images) {
  const JpegColors image = images[blockIdx.x];
  for (auto y = static_cast<int32_t>(blockIdx.y); y < image.height; y += kRowBlocks) {
    for (auto x = static_cast<int32_t>(threadIdx.x); x < image.width; x += kThreads)
      jpeg_convert(image, x, y);
  }
}

}  // namespace

cudaError_t lensbox_cuda_convert_jpeg_colors(const JpegColors* images, int64_t count, cudaStream_t stream) {
  const dim3 blocks(static_cast<unsigned>(count), kRowBlocks);
  convert_jpeg_colors<<<blocks, kThreads, 0, stream>>>(images);
  return cudaGetLastError();
}

}  // namespace lensbox
