// example::peaks on CUDA.

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_like.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/library.h>

#include "peaks.h"

namespace {

constexpr int kThreads = 256;

// Each thread computes one cell of one map.
__global__ void peaks_kernel(const float* heat, float* peaks, int64_t cells, int64_t height, int64_t width) {
  const int64_t cell = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (cell >= cells) return;
  const int64_t begin = cell / (height * width) * (height * width);  // the first cell of its map
  const int64_t y = (cell - begin) / width;
  const int64_t x = (cell - begin) % width;
  peaks[cell] = peak_at(heat + begin, height, width, y, x);
}

at::Tensor peaks_cuda(const at::Tensor& heat) {
  TORCH_CHECK_VALUE(heat.dim() == 3, "heat must have the shape [B, H, W], got ", heat.sizes());
  TORCH_CHECK_VALUE(heat.scalar_type() == at::kFloat, "heat must be float32, got ", heat.scalar_type());
  const c10::cuda::CUDAGuard device(heat.device());
  const at::Tensor input = heat.contiguous();
  at::Tensor output = at::empty_like(input);
  const int64_t cells = input.numel();
  if (cells == 0) return output;
  const auto blocks = static_cast<unsigned>((cells + kThreads - 1) / kThreads);
  peaks_kernel<<<blocks, kThreads, 0, c10::cuda::getCurrentCUDAStream()>>>(
      input.const_data_ptr<float>(), output.mutable_data_ptr<float>(), cells, input.size(1), input.size(2));
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return output;
}

}  // namespace

TORCH_LIBRARY_IMPL(example, CUDA, library) {
  library.impl("peaks", peaks_cuda);
}
