#include <torch/csrc/autograd/autograd_not_implemented_fallback.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "../ops.h"
#include "derivatives.h"

namespace lensbox {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

class MaskedGiouLossFunction : public torch::autograd::Function<MaskedGiouLossFunction> {
 public:
  static Tensor forward(AutogradContext* context, const Tensor& pred, const Tensor& target,
                        const std::optional<Tensor>& weight, double eps) {
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    const auto [loss, normalizer] = masked_giou_loss_forward(pred, target, weight, eps);
    // Beside the inputs only scalars are kept. The gradient of the weight needs the loss, and no other does:
    // a copy, since the caller may go on with `loss += ...`, which autograd refuses for what it has kept.
    const Tensor kept_loss = weight.has_value() && weight->requires_grad() ? loss.clone() : normalizer;
    context->save_for_backward({pred, target, weight.value_or(Tensor()), kept_loss, normalizer});
    context->saved_data["eps"] = eps;
    return loss;
  }

  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    const auto saved = context->get_saved_variables();
    const BelowAutogradInBackward below_autograd;
    const Tensor &pred = saved[0], &target = saved[1], &weight = saved[2], &loss = saved[3],
                 &normalizer = saved[4];
    const std::array<bool, 3> mask = {context->needs_input_grad(0), context->needs_input_grad(1),
                                      weight.defined() && context->needs_input_grad(2)};
    const auto [grad_pred, grad_target, grad_weight] = masked_giou_loss_backward(
        grads[0], pred, target, weight.defined() ? std::optional<Tensor>(weight) : std::nullopt, loss,
        normalizer, context->saved_data["eps"].toDouble(), mask);
    return {mask[0] ? grad_pred : Tensor(), mask[1] ? grad_target : Tensor(),
            mask[2] ? grad_weight : Tensor(), Tensor()};
  }
};

// Without autograd above it, the loss is the first output of the forward op.
Tensor masked_giou_loss(const Tensor& pred, const Tensor& target, const std::optional<Tensor>& weight,
                        double eps) {
  return std::get<0>(masked_giou_loss_forward(pred, target, weight, eps));
}

Tensor masked_giou_loss_autograd(const Tensor& pred, const Tensor& target,
                                 const std::optional<Tensor>& weight, double eps) {
  if (!needs_autograd(pred, target, weight.has_value() ? *weight : target)) {
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    return masked_giou_loss(pred, target, weight, eps);
  }
  return MaskedGiouLossFunction::apply(pred, target, weight, eps);
}

}  // namespace
}  // namespace lensbox

TORCH_LIBRARY_IMPL(lensbox, Autograd, m) {
  m.impl("masked_giou_loss", lensbox::masked_giou_loss_autograd);
  // Second derivatives are not offered; asking for one says so.
  m.impl("_masked_giou_loss_forward", torch::autograd::autogradNotImplementedFallback());
  m.impl("_masked_giou_loss_backward", torch::autograd::autogradNotImplementedFallback());
  m.impl("masked_giou_loss_and_grad", torch::autograd::autogradNotImplementedFallback());
}

TORCH_LIBRARY_IMPL(lensbox, CompositeExplicitAutograd, m) {
  m.impl("masked_giou_loss", lensbox::masked_giou_loss);
}
