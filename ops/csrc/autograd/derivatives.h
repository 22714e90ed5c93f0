// Code that the derivatives share: skip autograd if no gradient is recorded.
#pragma once

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <array>
#include <optional>

#include "../dispatch.h"

namespace lensbox {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Return whether a transform of torch.func is active. Its thread-local data outlives the transform, but the
// dispatch keys do not.
inline bool in_functorch() {
  constexpr c10::DispatchKeySet kLayers(
      {c10::DispatchKey::FuncTorchDynamicLayerFrontMode, c10::DispatchKey::FuncTorchDynamicLayerBackMode});
  return c10::impl::tls_local_dispatch_key_set().included_.has_any(kLayers);
}

// Return whether a call with these inputs must go through autograd: gradients are recorded and an input
// requires a gradient. Forward-mode tangents and torch.func must reach autograd too, which refuses them.
template <typename... Inputs>
bool needs_autograd(const Inputs&... inputs) {
  const bool records = at::GradMode::is_enabled();
  const auto takes_part = [records](const at::Tensor& input) {
    return (records && input.requires_grad()) || input._fw_grad(/*level=*/0).defined();
  };
  return (takes_part(inputs) || ...) || in_functorch();
}

// While this guard lives, ops go straight to their kernels. A backward holds the guard unless second
// derivatives are requested, which autograd refuses. Create the guard after get_saved_variables(), which may
// run a whole forward again (torch.utils.checkpoint) and then needs autograd.
class BelowAutogradInBackward {
 public:
  BelowAutogradInBackward() {
    if (!at::GradMode::is_enabled()) below_autograd_.emplace();
  }

 private:
  std::optional<at::AutoDispatchBelowADInplaceOrView> below_autograd_;
};

}  // namespace lensbox
