// Launchers of the loss over packed targets: raw memory, sizes and a stream, no ATen.
#pragma once

#include <cuda_runtime_api.h>

#include "../slot_view.h"

namespace lensbox {

struct JaggedProblem {
  SlotView pred;     // [images, slots]
  SlotView targets;  // [targets]
  SlotView offsets;  // [images + 1] int64 or int32; image i has the targets offsets[i] to offsets[i + 1]
  int64_t images, slots, target_count;
};

// Writes the loss and the normalizer max(number of targets, 1); see launch_masked_giou_loss_forward for the
// workspace and the ticket. Offsets that break the rules of is_valid_segment make the loss NaN; what they
// would point to is not read.
cudaError_t launch_jagged_giou_loss_forward(const JaggedProblem& problem, double eps, bool in_double,
                                            double* workspace, unsigned int* ticket, void* loss,
                                            void* normalizer, cudaStream_t stream);

// Writes every slot of the gradients that are not nullptr, each contiguous and in the dtype of its input; NaN
// where the offsets break the rules.
cudaError_t launch_jagged_giou_loss_backward(const SlotView& grad, const JaggedProblem& problem,
                                             const SlotView& normalizer, double eps, bool in_double,
                                             const SlotView* grad_pred, const SlotView* grad_targets,
                                             cudaStream_t stream);

}  // namespace lensbox
