#include <torch/csrc/autograd/autograd_not_implemented_fallback.h>
#include <torch/library.h>

// Bytes have no gradient.
TORCH_LIBRARY_IMPL(lensbox, Autograd, m) {
  m.impl("letterbox", torch::autograd::autogradNotImplementedFallback());
}
