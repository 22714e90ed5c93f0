// The backends of the ops: which kernels each backend has, and how the bindings call them.
#pragma once

#include <ATen/core/Tensor.h>

#include "cpu/launchers.h"

#ifdef LENSBOX_WITH_CUDA
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include "cuda/launchers.h"
#endif

namespace lensbox {

// Without kernels: an op checks its arguments and allocates its outputs. Shapes may be symbolic.
struct Meta {
  using Size = c10::SymInt;
  static constexpr bool kHasKernels = false;

  explicit Meta(const at::Tensor& /*tensor*/) {}
};

// The kernels of a backend.
#define LENSBOX_KERNELS_OF(backend)                                                                \
  static constexpr auto giou = lensbox_##backend##_giou;                                           \
  static constexpr auto giou_backward = lensbox_##backend##_giou_backward;                         \
  static constexpr auto pairwise_giou = lensbox_##backend##_pairwise_giou;                         \
  static constexpr auto pairwise_giou_backward = lensbox_##backend##_pairwise_giou_backward;       \
  static constexpr auto masked_giou_loss_forward = lensbox_##backend##_masked_giou_loss_forward;   \
  static constexpr auto masked_giou_loss_backward = lensbox_##backend##_masked_giou_loss_backward; \
  static constexpr auto masked_giou_loss_and_grad = lensbox_##backend##_masked_giou_loss_and_grad; \
  static constexpr auto jagged_giou_loss_forward = lensbox_##backend##_jagged_giou_loss_forward;   \
  static constexpr auto jagged_giou_loss_backward = lensbox_##backend##_jagged_giou_loss_backward; \
  static constexpr auto padded_nms = lensbox_##backend##_padded_nms;                               \
  static constexpr auto fit = lensbox_##backend##_fit;                                             \
  static constexpr auto look_up = lensbox_##backend##_look_up;

// A backend is constructed from a tensor of the call. run() calls a kernel; run_with_workspace() calls a
// kernel whose last argument is a workspace.
struct Cpu {
  using Size = int64_t;
  static constexpr bool kHasKernels = true, kIsCuda = false;
  LENSBOX_KERNELS_OF(cpu)

  explicit Cpu(const at::Tensor& /*tensor*/) {}

  static size_t loss_workspace(int64_t /*threads*/) { return 0; }
  static size_t padded_nms_workspace(const NmsProblem& /*problem*/) { return 0; }

  template <typename Kernel, typename... Arguments>
  void run(Kernel kernel, const Arguments&... arguments) const {
    kernel(arguments...);
  }

  template <typename Kernel, typename... Arguments>
  void run_with_workspace(size_t /*bytes*/, Kernel kernel, const Arguments&... arguments) const {
    kernel(arguments...);
  }
};

#ifdef LENSBOX_WITH_CUDA
// The backend that runs on the tensor's device and its current stream.
struct Cuda {
  using Size = int64_t;
  static constexpr bool kHasKernels = true, kIsCuda = true;
  LENSBOX_KERNELS_OF(cuda)
  static constexpr auto loss_workspace = lensbox_cuda_loss_workspace;
  static constexpr auto padded_nms_workspace = lensbox_cuda_padded_nms_workspace;

  explicit Cuda(const at::Tensor& tensor) : device(tensor.device()) {}

  template <typename Kernel, typename... Arguments>
  void run(Kernel kernel, const Arguments&... arguments) const {
    C10_CUDA_CHECK(kernel(arguments..., c10::cuda::getCurrentCUDAStream()));
  }

  // The workspace is from torch's allocator; a tensor would take longer to make.
  template <typename Kernel, typename... Arguments>
  void run_with_workspace(size_t bytes, Kernel kernel, const Arguments&... arguments) const {
    const c10::DataPtr workspace =
        bytes > 0 ? c10::cuda::CUDACachingAllocator::get()->allocate(bytes) : c10::DataPtr();
    run(kernel, arguments..., workspace.get());
  }

  c10::cuda::CUDAGuard device;
};
#endif

}  // namespace lensbox

// Register `function`, a template of the backend, as the kernel of `op` on each backend that is built.
#ifdef LENSBOX_WITH_CUDA
#define LENSBOX_CUDA_BINDINGS(register_with)  \
  TORCH_LIBRARY_IMPL(lensbox, CUDA, m) {      \
    lensbox::register_with<lensbox::Cuda>(m); \
  }
#else
#define LENSBOX_CUDA_BINDINGS(register_with)
#endif
#define LENSBOX_BINDINGS(register_with)       \
  TORCH_LIBRARY_IMPL(lensbox, Meta, m) {      \
    lensbox::register_with<lensbox::Meta>(m); \
  }                                           \
  TORCH_LIBRARY_IMPL(lensbox, CPU, m) {       \
    lensbox::register_with<lensbox::Cpu>(m);  \
  }                                           \
  LENSBOX_CUDA_BINDINGS(register_with)
