#include <torch/csrc/autograd/autograd_not_implemented_fallback.h>
#include <torch/library.h>

// Suppression has no derivative: backward through its outputs says so, rather than losing gradients silently.
// To train through kept boxes, index the inputs with `indices`.
TORCH_LIBRARY_IMPL(lensbox, Autograd, m) {
  m.impl("padded_nms", torch::autograd::autogradNotImplementedFallback());
  m.impl("padded_nms.tensor_thresholds", torch::autograd::autogradNotImplementedFallback());
}
