// Launchers of the fused loss: raw memory, sizes and a stream, no ATen.
#pragma once

#include <cuda_runtime_api.h>

#include "../slot_view.h"

namespace lensbox {

struct MaskedProblem {
  SlotView pred, target;  // [slots] of four coordinates
  SlotView weight;  // [slots] where is_weighted; otherwise a slot counts once unless y2 of its target is 0
  bool is_weighted;
  int64_t slots;
  double eps;
  bool in_double;  // the arithmetic, and the dtype of the scalars
};

// Writes the loss and the normalizer max(sum(w), 1).
//   workspace   2 doubles for each block of loss_shape(slots) (launch.h), in any state
//   ticket      holds 0, and does so again when the launch is over
// With one block neither is used.
cudaError_t launch_masked_giou_loss_forward(const MaskedProblem& problem, double* workspace,
                                            unsigned int* ticket, void* loss, void* normalizer,
                                            cudaStream_t stream);

// Where gradients go; nullptr for one that nobody asked for.
struct MaskedGradients {
  const SlotView *pred, *target, *weight;
};

// Writes every slot of the gradients, each contiguous and in the dtype of its input. grad, of any dtype, loss
// and normalizer are scalars on the device; a grad without data stands for 1.
cudaError_t launch_masked_giou_loss_backward(const MaskedProblem& problem, const SlotView& grad,
                                             const void* loss, const void* normalizer,
                                             const MaskedGradients& out, cudaStream_t stream);

// Writes the loss and its gradient in pred, contiguous and in the dtype of pred: one launch, or two where
// that is slower or impossible, which also write the normalizer.
cudaError_t launch_masked_giou_loss_and_grad(const MaskedProblem& problem, double* workspace,
                                             unsigned int* ticket, void* loss, void* normalizer,
                                             const SlotView& grad_pred, cudaStream_t stream);

}  // namespace lensbox
