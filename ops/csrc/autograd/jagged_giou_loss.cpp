#include <torch/csrc/autograd/autograd_not_implemented_fallback.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "../ops.h"
#include "derivatives.h"

namespace lensbox {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

class JaggedGiouLossFunction : public torch::autograd::Function<JaggedGiouLossFunction> {
 public:
  static Tensor forward(AutogradContext* context, const Tensor& pred, const Tensor& targets,
                        const Tensor& offsets, double eps) {
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    const auto [loss, normalizer] = jagged_giou_loss_forward(pred, targets, offsets, eps);
    context->save_for_backward({pred, targets, offsets, normalizer});
    context->saved_data["eps"] = eps;
    return loss;
  }

  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    const auto saved = context->get_saved_variables();
    const BelowAutogradInBackward below_autograd;
    const std::array<bool, 2> mask = {context->needs_input_grad(0), context->needs_input_grad(1)};
    const auto [grad_pred, grad_targets] = jagged_giou_loss_backward(
        grads[0], saved[0], saved[1], saved[2], saved[3], context->saved_data["eps"].toDouble(), mask);
    return {mask[0] ? grad_pred : Tensor(), mask[1] ? grad_targets : Tensor(), Tensor(), Tensor()};
  }
};

// Without autograd above it, the loss is the first output of the forward op.
Tensor jagged_giou_loss(const Tensor& pred, const Tensor& targets, const Tensor& offsets, double eps) {
  return std::get<0>(jagged_giou_loss_forward(pred, targets, offsets, eps));
}

Tensor jagged_giou_loss_autograd(const Tensor& pred, const Tensor& targets, const Tensor& offsets,
                                 double eps) {
  if (!needs_autograd(pred, targets)) {
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    return jagged_giou_loss(pred, targets, offsets, eps);
  }
  return JaggedGiouLossFunction::apply(pred, targets, offsets, eps);
}

}  // namespace
}  // namespace lensbox

TORCH_LIBRARY_IMPL(lensbox, Autograd, m) {
  m.impl("jagged_giou_loss", lensbox::jagged_giou_loss_autograd);
  // Second derivatives are not offered; asking for one says so.
  m.impl("_jagged_giou_loss_forward", torch::autograd::autogradNotImplementedFallback());
  m.impl("_jagged_giou_loss_backward", torch::autograd::autogradNotImplementedFallback());
}

TORCH_LIBRARY_IMPL(lensbox, CompositeExplicitAutograd, m) {
  m.impl("jagged_giou_loss", lensbox::jagged_giou_loss);
}
