// Launchers of the fused loss: raw memory, sizes and a stream, no ATen.
#pragma once

#include <cuda_runtime_api.h>

#include "../slot_view.h"

namespace lensbox {

// Writes the loss and the normalizer max(sum(w), 1), both double where in_double and float otherwise.
//   weight      nullptr: a slot counts once unless y2 of its target is 0
//   workspace   2 * loss_max_blocks() doubles (launch.h), in any state
//   ticket      holds 0, and does so again when the launch is over
cudaError_t launch_masked_giou_loss_forward(const SlotView& pred, const SlotView& target,
                                            const SlotView* weight, double eps, bool in_double, int64_t slots,
                                            double* workspace, unsigned int* ticket, void* loss,
                                            void* normalizer, cudaStream_t stream);

// Writes every slot of the gradients that are not nullptr, each contiguous and in the dtype of its input.
// grad, loss and normalizer are scalars on the device.
cudaError_t launch_masked_giou_loss_backward(const SlotView& grad, const SlotView& pred,
                                             const SlotView& target, const SlotView* weight,
                                             const SlotView& loss, const SlotView& normalizer, double eps,
                                             bool in_double, int64_t slots, const SlotView* grad_pred,
                                             const SlotView* grad_target, const SlotView* grad_weight,
                                             cudaStream_t stream);

}  // namespace lensbox
