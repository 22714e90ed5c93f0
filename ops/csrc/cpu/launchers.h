// The CPU half of liblensbox_kernels: what the CUDA launchers of the same names do (cuda/launchers.h),
// without a stream and a workspace, in the calling thread.
#pragma once

#include <cstdint>

#include "../letterbox_math.h"
#include "../problems.h"

namespace lensbox {

LENSBOX_KERNEL void lensbox_cpu_giou(const SlotView& boxes1, const SlotView& boxes2, double eps,
                                     bool in_double, int64_t slots, const SlotView& out);
LENSBOX_KERNEL void lensbox_cpu_giou_backward(const SlotView& grad, const SlotView& boxes1,
                                              const SlotView& boxes2, double eps, bool in_double,
                                              int64_t slots, const SlotView* grad1, const SlotView* grad2);

LENSBOX_KERNEL void lensbox_cpu_pairwise_giou(const PairwiseProblem& problem, double eps, bool in_double,
                                              const SlotView& out);
LENSBOX_KERNEL void lensbox_cpu_pairwise_giou_backward(const SlotView& grad, const PairwiseProblem& problem,
                                                       double eps, bool in_double, const SlotView* grad1,
                                                       const SlotView* grad2);

LENSBOX_KERNEL void lensbox_cpu_masked_giou_loss_forward(const MaskedProblem& problem, void* loss,
                                                         double* normalizer);
LENSBOX_KERNEL void lensbox_cpu_masked_giou_loss_backward(const MaskedProblem& problem, const SlotView& grad,
                                                          const void* loss, const double* normalizer,
                                                          const MaskedGradients& out);
LENSBOX_KERNEL void lensbox_cpu_masked_giou_loss_and_grad(const MaskedProblem& problem, void* loss,
                                                          double* normalizer, const SlotView& grad_pred);

// Return the first image whose offsets break the rules of is_valid_segment, or -1. The two kernels that
// follow need valid offsets.
LENSBOX_KERNEL int64_t lensbox_cpu_first_invalid_segment(const JaggedProblem& problem);
LENSBOX_KERNEL void lensbox_cpu_jagged_giou_loss_forward(const JaggedProblem& problem, void* loss,
                                                         double* normalizer);
LENSBOX_KERNEL void lensbox_cpu_jagged_giou_loss_backward(const JaggedProblem& problem, const SlotView& grad,
                                                          const double* normalizer, const SlotView* grad_pred,
                                                          const SlotView* grad_targets);

LENSBOX_KERNEL void lensbox_cpu_padded_nms(const NmsProblem& problem);

LENSBOX_KERNEL void lensbox_cpu_letterbox(const ImageView* images, int64_t count, const Canvases& out);

}  // namespace lensbox
