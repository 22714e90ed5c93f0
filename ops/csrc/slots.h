// Make the raw views that the kernels take from torch tensors, and broadcast all but the last dimensions,
// also for symbolic shapes.
#pragma once

#include <ATen/ExpandUtils.h>
#include <ATen/core/Tensor.h>

#include <optional>

#include "problems.h"

namespace lensbox {

// Return the dtype as kernels know it; nothing for one that no kernel reads.
std::optional<DType> kernel_dtype(at::ScalarType dtype);

// Return the broadcast of the shapes of a and b without their `trailing` last dimensions. Throws where the
// shapes do not match.
inline at::SymDimVector broadcast_leading(const at::Tensor& a, const at::Tensor& b, int64_t trailing) {
  return at::infer_size_symdimvector(a.sym_sizes().slice(0, a.dim() - trailing),
                                     b.sym_sizes().slice(0, b.dim() - trailing));
}

// Return the tensor, or a contiguous copy if its leading dimensions have more strides than a SlotView holds.
// `trailing`: 1 for boxes, 0 for numbers. The caller keeps the result while a view of it is in use.
at::Tensor viewable(const at::Tensor& tensor, int64_t trailing);

// Return `boxes` with its leading dimensions expanded to `leading` (a view where it can be one, else a copy).
at::Tensor expand_leading(const at::Tensor& boxes, c10::SymIntArrayRef leading, int64_t trailing);

// View a tensor [..., 4]: one slot a box. Inputs are not written, so a copy-on-write tensor stays shared.
SlotView box_slots(const at::Tensor& boxes);

// View a tensor [...]: one slot a number.
SlotView number_slots(const at::Tensor& numbers);

}  // namespace lensbox
