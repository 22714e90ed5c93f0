// A new implementation of the article's kernel: one thread computes one slot, float32 only, and y2 marks
// padding. Each block adds up its slots in shared memory; PyTorch adds up the blocks and divides. The caller
// casts both inputs to float32 first. There is no backward. There are two versions, as in the article:
//
//   branch-free   every thread reads its prediction and computes; padding is cleared at the end
//   skipping      threads of padding read no prediction and compute nothing ("conditional execution")

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/library.h>

#include <tuple>

namespace {

constexpr int kThreads = 256;
constexpr float kEps = 1e-7f;

__device__ float giou(float4 a, float4 b) {
  const float area_a = (a.z - a.x) * (a.w - a.y);
  const float area_b = (b.z - b.x) * (b.w - b.y);
  const float width = fmaxf(fminf(a.z, b.z) - fmaxf(a.x, b.x), 0.0f);
  const float height = fmaxf(fminf(a.w, b.w) - fmaxf(a.y, b.y), 0.0f);
  const float intersection = width * height;
  const float union_area = area_a + area_b - intersection;
  const float hull = (fmaxf(a.z, b.z) - fminf(a.x, b.x)) * (fmaxf(a.w, b.w) - fminf(a.y, b.y));
  return intersection / fmaxf(union_area, kEps) - (hull - union_area) / fmaxf(hull, kEps);
}

template <bool kSkip>
__global__ void __launch_bounds__(kThreads)
    article_kernel(const float4* pred, const float4* target, int64_t slots, float* losses, float* counts) {
  __shared__ float shared_loss[kThreads];
  __shared__ float shared_count[kThreads];
  const int64_t slot = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  float loss = 0.0f, count = 0.0f;
  if (slot < slots) {
    const float4 wanted = target[slot];
    const bool valid = wanted.w != 0.0f;
    if (!kSkip || valid) {
      const float value = 1.0f - giou(pred[slot], wanted);
      loss = valid ? value : 0.0f;
      count = valid ? 1.0f : 0.0f;
    }
  }
  shared_loss[threadIdx.x] = loss;
  shared_count[threadIdx.x] = count;
  __syncthreads();
  for (int half = kThreads / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) {
      shared_loss[threadIdx.x] += shared_loss[threadIdx.x + half];
      shared_count[threadIdx.x] += shared_count[threadIdx.x + half];
    }
    __syncthreads();
  }
  if (threadIdx.x == 0) {
    losses[blockIdx.x] = shared_loss[0];
    counts[blockIdx.x] = shared_count[0];
  }
}

// Return the sum of each block, float32 [blocks]. pred, target: float32 [..., 4], contiguous.
std::tuple<at::Tensor, at::Tensor> article_sums(const at::Tensor& pred, const at::Tensor& target, bool skip) {
  TORCH_CHECK(pred.scalar_type() == at::kFloat && target.scalar_type() == at::kFloat,
              "pred and target must be float32, got ", pred.scalar_type(), " and ", target.scalar_type());
  TORCH_CHECK(pred.sizes() == target.sizes() && pred.size(-1) == 4,
              "pred and target must have one shape [..., 4], got ", pred.sizes(), " and ", target.sizes());
  TORCH_CHECK(pred.is_contiguous() && target.is_contiguous(), "pred and target must be contiguous");
  const c10::cuda::CUDAGuard device(pred.device());
  const int64_t slots = pred.numel() / 4;
  const int64_t blocks = (slots + kThreads - 1) / kThreads;
  at::Tensor losses = at::empty({blocks}, pred.options());
  at::Tensor counts = at::empty({blocks}, pred.options());
  if (blocks > 0) {
    const auto kernel = skip ? article_kernel<true> : article_kernel<false>;
    kernel<<<static_cast<unsigned int>(blocks), kThreads, 0, c10::cuda::getCurrentCUDAStream()>>>(
        reinterpret_cast<const float4*>(pred.const_data_ptr<float>()),
        reinterpret_cast<const float4*>(target.const_data_ptr<float>()), slots,
        losses.mutable_data_ptr<float>(), counts.mutable_data_ptr<float>());
    C10_CUDA_KERNEL_LAUNCH_CHECK();
  }
  return {losses, counts};
}

}  // namespace

TORCH_LIBRARY(lensbox_bench, m) {
  m.def("article_sums(Tensor pred, Tensor target, bool skip) -> (Tensor losses, Tensor counts)");
}

TORCH_LIBRARY_IMPL(lensbox_bench, CUDA, m) {
  m.impl("article_sums", article_sums);
}
