// Broadcasting of everything but the last dimensions, for real and for symbolic shapes.
#pragma once

#include <ATen/ExpandUtils.h>
#include <ATen/core/Tensor.h>

namespace lensbox {

// The broadcast of the shapes of a and b without their `trailing` last dimensions. Throws where they do not
// match.
inline at::SymDimVector broadcast_leading(const at::Tensor& a, const at::Tensor& b, int64_t trailing) {
  return at::infer_size_symdimvector(a.sym_sizes().slice(0, a.dim() - trailing),
                                     b.sym_sizes().slice(0, b.dim() - trailing));
}

// The tensor with its leading dimensions expanded to `leading` (a view; the last `trailing` stay as they
// are).
inline at::Tensor expand_leading(const at::Tensor& tensor, c10::SymIntArrayRef leading, int64_t trailing) {
  at::SymDimVector shape(leading.begin(), leading.end());
  for (int64_t d = tensor.dim() - trailing; d < tensor.dim(); ++d) {
    shape.push_back(tensor.sym_size(d));
  }
  return tensor.expand_symint(shape);
}

}  // namespace lensbox
