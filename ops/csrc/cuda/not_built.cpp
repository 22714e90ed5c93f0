// Compiled where the CUDA kernels are not: a call with CUDA tensors says how to get them.

#include <torch/library.h>

namespace {

void cuda_not_built(const c10::OperatorHandle& op, torch::jit::Stack* /*stack*/) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      false, op.schema().name(),
      ": this liblensbox_ops was built without CUDA. Build it where torch has CUDA and nvcc"
      " is on PATH, with LENSBOX_CUDA=ON.");
}

}  // namespace

TORCH_LIBRARY_IMPL(lensbox, CUDA, m) {
  for (const char* op :
       {"giou", "_giou_backward", "pairwise_giou", "_pairwise_giou_backward", "_masked_giou_loss_forward",
        "_masked_giou_loss_backward", "masked_giou_loss_and_grad", "_jagged_giou_loss_forward",
        "_jagged_giou_loss_backward", "padded_nms", "letterbox"}) {
    m.impl(op, torch::CppFunction::makeFromBoxedFunction<&cuda_not_built>());
  }
}
