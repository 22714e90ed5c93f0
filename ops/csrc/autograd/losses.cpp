// The derivatives of the losses.

#include "derivatives.h"

namespace lensbox {
namespace {

using MaybeTensor = std::optional<Tensor>;

std::tuple<Tensor, Tensor> masked_forward(const Tensor& pred, const Tensor& target, const MaybeTensor& weight,
                                          double eps) {
  static const auto op =
      find_op<std::tuple<Tensor, Tensor>(const Tensor&, const Tensor&, const MaybeTensor&, double)>(
          "lensbox::_masked_giou_loss_forward");
  return op.call(pred, target, weight, eps);
}

std::tuple<Tensor, Tensor> jagged_forward(const Tensor& pred, const Tensor& targets, const Tensor& offsets,
                                          double eps) {
  static const auto op =
      find_op<std::tuple<Tensor, Tensor>(const Tensor&, const Tensor&, const Tensor&, double)>(
          "lensbox::_jagged_giou_loss_forward");
  return op.call(pred, targets, offsets, eps);
}

class MaskedGiouLossFunction : public torch::autograd::Function<MaskedGiouLossFunction> {
 public:
  static Tensor forward(AutogradContext* context, const Tensor& pred, const Tensor& target,
                        const MaybeTensor& weight, double eps) {
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    const auto [loss, normalizer] = masked_forward(pred, target, weight, eps);
    // Besides the inputs, save only scalars. Only the gradient of the weight needs the loss. Save a copy,
    // because autograd refuses `loss += ...` on a saved tensor.
    const Tensor kept_loss = weight.has_value() && weight->requires_grad() ? loss.clone() : Tensor();
    context->save_for_backward({pred, target, weight.value_or(Tensor()), kept_loss, normalizer});
    context->saved_data["eps"] = eps;
    return loss;
  }

  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    const auto saved = context->get_saved_variables();
    const BelowAutogradInBackward below_autograd;
    const auto given = [&](int i) { return saved[i].defined() ? MaybeTensor(saved[i]) : std::nullopt; };
    const std::array<bool, 3> mask = {context->needs_input_grad(0), context->needs_input_grad(1),
                                      saved[2].defined() && context->needs_input_grad(2)};
    static const auto op = find_op<std::tuple<Tensor, Tensor, Tensor>(
        const Tensor&, const Tensor&, const Tensor&, const MaybeTensor&, const MaybeTensor&, const Tensor&,
        double, std::array<bool, 3>)>("lensbox::_masked_giou_loss_backward");
    const auto [grad_pred, grad_target, grad_weight] =
        op.call(grads[0], saved[0], saved[1], given(2), given(3), saved[4],
                context->saved_data["eps"].toDouble(), mask);
    return {mask[0] ? grad_pred : Tensor(), mask[1] ? grad_target : Tensor(),
            mask[2] ? grad_weight : Tensor(), Tensor()};
  }
};

class JaggedGiouLossFunction : public torch::autograd::Function<JaggedGiouLossFunction> {
 public:
  static Tensor forward(AutogradContext* context, const Tensor& pred, const Tensor& targets,
                        const Tensor& offsets, double eps) {
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    const auto [loss, normalizer] = jagged_forward(pred, targets, offsets, eps);
    context->save_for_backward({pred, targets, offsets, normalizer});
    context->saved_data["eps"] = eps;
    return loss;
  }

  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    const auto saved = context->get_saved_variables();
    const BelowAutogradInBackward below_autograd;
    const std::array<bool, 2> mask = {context->needs_input_grad(0), context->needs_input_grad(1)};
    static const auto op =
        find_op<std::tuple<Tensor, Tensor>(const Tensor&, const Tensor&, const Tensor&, const Tensor&,
                                           const Tensor&, double, std::array<bool, 2>)>(
            "lensbox::_jagged_giou_loss_backward");
    const auto [grad_pred, grad_targets] = op.call(grads[0], saved[0], saved[1], saved[2], saved[3],
                                                   context->saved_data["eps"].toDouble(), mask);
    return {mask[0] ? grad_pred : Tensor(), mask[1] ? grad_targets : Tensor(), Tensor(), Tensor()};
  }
};

// Without autograd above it, the loss is the first output of the forward op.
Tensor masked_giou_loss(const Tensor& pred, const Tensor& target, const MaybeTensor& weight, double eps) {
  return std::get<0>(masked_forward(pred, target, weight, eps));
}

Tensor jagged_giou_loss(const Tensor& pred, const Tensor& targets, const Tensor& offsets, double eps) {
  return std::get<0>(jagged_forward(pred, targets, offsets, eps));
}

Tensor masked_giou_loss_autograd(const Tensor& pred, const Tensor& target, const MaybeTensor& weight,
                                 double eps) {
  if (!needs_autograd(pred, target, weight.has_value() ? *weight : target)) {
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    return masked_giou_loss(pred, target, weight, eps);
  }
  return MaskedGiouLossFunction::apply(pred, target, weight, eps);
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
  m.impl("masked_giou_loss", lensbox::masked_giou_loss_autograd);
  m.impl("jagged_giou_loss", lensbox::jagged_giou_loss_autograd);
}

TORCH_LIBRARY_IMPL(lensbox, CompositeExplicitAutograd, m) {
  m.impl("masked_giou_loss", lensbox::masked_giou_loss);
  m.impl("jagged_giou_loss", lensbox::jagged_giou_loss);
}
