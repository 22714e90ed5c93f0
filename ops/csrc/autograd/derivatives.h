// What the derivatives share: ways past autograd where it has nothing to do, and the gradients of broadcast
// inputs.
#pragma once

#include <ATen/ExpandUtils.h>
#include <ATen/FuncTorchTLS.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/nan_to_num.h>

#include <limits>
#include <optional>

namespace lensbox {

// Whether autograd must hear of a call with these inputs: gradients are recorded and one of them asks for its
// own. What is not offered must reach autograd too, which refuses it: tangents and functorch's transforms.
template <typename... Inputs>
bool needs_autograd(const Inputs&... inputs) {
  const bool records = at::GradMode::is_enabled();
  const auto takes_part = [records](const at::Tensor& input) {
    return (records && input.requires_grad()) || input._fw_grad(/*level=*/0).defined();
  };
  return (takes_part(inputs) || ...) || at::functorch::functorchTLSAccessor() != nullptr;
}

// The gradient of an input that was broadcast to the shape of `grad`: those of all its copies. They are
// finite, but their sum may be too large for the dtype: it saturates, as the kernels' gradients do.
inline at::Tensor sum_of_copies(const at::Tensor& grad, const at::Tensor& input) {
  if (grad.sym_sizes() == input.sym_sizes()) return grad;
  constexpr double kStaysNan = std::numeric_limits<double>::quiet_NaN();
  return at::nan_to_num(at::sum_to(grad, input.sym_sizes()), kStaysNan);
}

// While it lives, ops go straight to their kernels. A backward has it, unless second derivatives are asked
// for: those are refused by what it would go past. It begins behind get_saved_variables(), since that may run
// a whole forward again, which needs autograd (torch.utils.checkpoint).
class BelowAutogradInBackward {
 public:
  BelowAutogradInBackward() {
    if (!at::GradMode::is_enabled()) below_autograd_.emplace();
  }

 private:
  std::optional<at::AutoDispatchBelowADInplaceOrView> below_autograd_;
};

}  // namespace lensbox
