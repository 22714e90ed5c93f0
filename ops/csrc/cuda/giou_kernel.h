// Launchers of the element-wise GIoU kernels: raw memory, sizes and a stream, no ATen.
#pragma once

#include <cuda_runtime_api.h>

#include "../slot_view.h"

namespace lensbox {

// out[i] = giou(boxes1[i], boxes2[i]) for `slots` slots; out is contiguous. Arithmetic in double where
// in_double.
cudaError_t launch_giou(const SlotView& boxes1, const SlotView& boxes2, double eps, bool in_double,
                        int64_t slots, const SlotView& out, cudaStream_t stream);

// Writes the gradients that are not nullptr, each contiguous and in the dtype of its boxes.
cudaError_t launch_giou_backward(const SlotView& grad, const SlotView& boxes1, const SlotView& boxes2,
                                 double eps, bool in_double, int64_t slots, const SlotView* grad1,
                                 const SlotView* grad2, cudaStream_t stream);

}  // namespace lensbox
