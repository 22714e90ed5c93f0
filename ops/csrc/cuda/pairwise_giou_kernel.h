// Launchers of the pairwise GIoU kernels: raw memory, sizes and a stream, no ATen.
#pragma once

#include <cuda_runtime_api.h>

#include "../pairwise_problem.h"

namespace lensbox {

// out is contiguous. Arithmetic in double where in_double.
cudaError_t launch_pairwise_giou(const PairwiseProblem& problem, double eps, bool in_double,
                                 const SlotView& out, cudaStream_t stream);

// Writes the gradients that are not nullptr: grad1 [batch, rows, 4] and grad2 [batch, columns, 4], each
// contiguous and in the dtype of its boxes. grad may have any strides.
cudaError_t launch_pairwise_giou_backward(const SlotView& grad, const PairwiseProblem& problem, double eps,
                                          bool in_double, const SlotView* grad1, const SlotView* grad2,
                                          cudaStream_t stream);

}  // namespace lensbox
