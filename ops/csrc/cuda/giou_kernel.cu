#include "launch.h"
#include "launchers.h"
#include "memory.cuh"

namespace lensbox {
namespace {

constexpr int kThreads = 256;
constexpr int kBlocksPerSm = 8;

// One thread computes one slot; a warp reads and writes adjacent slots.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    giou_kernel(const __grid_constant__ SlotView boxes1, const __grid_constant__ SlotView boxes2, T eps,
                int64_t slots, const __grid_constant__ SlotView out) {
  const int64_t step = int64_t{gridDim.x} * kThreads;
  for (int64_t slot = int64_t{blockIdx.x} * kThreads + threadIdx.x; slot < slots; slot += step) {
    store_number(out, slot, giou(load_box<T>(boxes1, slot), load_box<T>(boxes2, slot), eps));
  }
}

// One thread computes one slot: both gradients, or the gradient that was requested.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    giou_backward_kernel(const __grid_constant__ SlotView grad, const __grid_constant__ SlotView boxes1,
                         const __grid_constant__ SlotView boxes2, T eps, int64_t slots,
                         const __grid_constant__ SlotView grad1, const __grid_constant__ SlotView grad2) {
  const int64_t step = int64_t{gridDim.x} * kThreads;
  for (int64_t slot = int64_t{blockIdx.x} * kThreads + threadIdx.x; slot < slots; slot += step) {
    const Box<T> a = load_box<T>(boxes1, slot);
    const Box<T> b = load_box<T>(boxes2, slot);
    const T upstream = load_number<T>(grad, slot);
    if (grad1.exists()) store_box(grad1, slot, scaled(giou_gradient(a, b, eps), upstream));
    if (grad2.exists()) store_box(grad2, slot, scaled(giou_gradient(b, a, eps), upstream));
  }
}

}  // namespace

cudaError_t lensbox_cuda_giou(const SlotView& boxes1, const SlotView& boxes2, double eps, bool in_double,
                              int64_t slots, const SlotView& out, cudaStream_t stream) {
  if (slots == 0) return cudaSuccess;
  const int blocks = grid_size(slots, kThreads, kBlocksPerSm);
  with_math(in_double, [&](auto math) {
    using T = decltype(math);
    giou_kernel<T><<<blocks, kThreads, 0, stream>>>(boxes1, boxes2, static_cast<T>(eps), slots, out);
  });
  return cudaGetLastError();
}

cudaError_t lensbox_cuda_giou_backward(const SlotView& grad, const SlotView& boxes1, const SlotView& boxes2,
                                       double eps, bool in_double, int64_t slots, const SlotView& grad1,
                                       const SlotView& grad2, cudaStream_t stream) {
  if (slots == 0) return cudaSuccess;
  const int blocks = grid_size(slots, kThreads, kBlocksPerSm);
  with_math(in_double, [&](auto math) {
    using T = decltype(math);
    giou_backward_kernel<T>
        <<<blocks, kThreads, 0, stream>>>(grad, boxes1, boxes2, static_cast<T>(eps), slots, grad1, grad2);
  });
  return cudaGetLastError();
}

}  // namespace lensbox
