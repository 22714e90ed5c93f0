// The derivatives of the losses.

#include "derivatives.h"

namespace lensbox {
namespace {

using MaybeTensor = std::optional<Tensor>;
using Gradients = std::tuple<Tensor, Tensor, Tensor>;  // of the first three arguments

// The halves of a loss. Third: its third argument, of which the jagged loss has no gradient.
struct Masked {
  using Third = MaybeTensor;  // weights

  static std::tuple<Tensor, Tensor> forward(const Tensor& pred, const Tensor& target, const Third& weight,
                                            double eps) {
    static const auto op =
        find_op<std::tuple<Tensor, Tensor>(const Tensor&, const Tensor&, const Third&, double)>(
            "lensbox::_masked_giou_loss_forward");
    return op.call(pred, target, weight, eps);
  }

  static Gradients backward(const Tensor& grad, const variable_list& saved, double eps,
                            std::array<bool, 3> mask) {
    const auto given = [&](int i) { return saved[i].defined() ? MaybeTensor(saved[i]) : std::nullopt; };
    static const auto op =
        find_op<Gradients(const Tensor&, const Tensor&, const Tensor&, const MaybeTensor&, const MaybeTensor&,
                          const Tensor&, double, std::array<bool, 3>)>("lensbox::_masked_giou_loss_backward");
    return op.call(grad, saved[0], saved[1], given(2), given(3), saved[4], eps, mask);
  }
};

struct Jagged {
  using Third = Tensor;  // offsets

  static std::tuple<Tensor, Tensor> forward(const Tensor& pred, const Tensor& targets, const Third& offsets,
                                            double eps) {
    static const auto op =
        find_op<std::tuple<Tensor, Tensor>(const Tensor&, const Tensor&, const Third&, double)>(
            "lensbox::_jagged_giou_loss_forward");
    return op.call(pred, targets, offsets, eps);
  }

  static Gradients backward(const Tensor& grad, const variable_list& saved, double eps,
                            std::array<bool, 3> mask) {
    static const auto op =
        find_op<std::tuple<Tensor, Tensor>(const Tensor&, const Tensor&, const Tensor&, const Tensor&,
                                           const Tensor&, double, std::array<bool, 2>)>(
            "lensbox::_jagged_giou_loss_backward");
    return std::tuple_cat(op.call(grad, saved[0], saved[1], saved[2], saved[4], eps, {mask[0], mask[1]}),
                          std::tuple(Tensor()));
  }
};

template <typename Loss>
class LossFunction : public torch::autograd::Function<LossFunction<Loss>> {
 public:
  static Tensor forward(AutogradContext* context, const Tensor& pred, const Tensor& target,
                        const typename Loss::Third& third, double eps) {
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    const auto [loss, normalizer] = Loss::forward(pred, target, third, eps);
    // Besides the inputs, save only scalars. Only the gradient of the weight needs the loss. Save a copy,
    // because autograd refuses `loss += ...` on a saved tensor.
    const Tensor given = MaybeTensor(third).value_or(Tensor());
    const Tensor kept_loss = given.defined() && given.requires_grad() ? loss.clone() : Tensor();
    context->save_for_backward({pred, target, given, kept_loss, normalizer});
    context->saved_data["eps"] = eps;
    return loss;
  }

  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    const auto saved = context->get_saved_variables();
    const BelowAutogradInBackward below_autograd;
    const std::array<bool, 3> mask = {context->needs_input_grad(0), context->needs_input_grad(1),
                                      saved[2].defined() && context->needs_input_grad(2)};
    const auto [first, second, third] =
        Loss::backward(grads[0], saved, context->saved_data["eps"].toDouble(), mask);
    return {mask[0] ? first : Tensor(), mask[1] ? second : Tensor(), mask[2] ? third : Tensor(), Tensor()};
  }
};

// Without autograd above it, the loss is the first output of the forward op.
template <typename Loss>
Tensor loss(const Tensor& pred, const Tensor& target, const typename Loss::Third& third, double eps) {
  return std::get<0>(Loss::forward(pred, target, third, eps));
}

template <typename Loss>
Tensor loss_autograd(const Tensor& pred, const Tensor& target, const typename Loss::Third& third,
                     double eps) {
  if (!needs_autograd(pred, target, MaybeTensor(third).value_or(target))) {
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    return loss<Loss>(pred, target, third, eps);
  }
  return LossFunction<Loss>::apply(pred, target, third, eps);
}

}  // namespace
}  // namespace lensbox

TORCH_LIBRARY_IMPL(lensbox, Autograd, m) {
  m.impl("masked_giou_loss", lensbox::loss_autograd<lensbox::Masked>);
  m.impl("jagged_giou_loss", lensbox::loss_autograd<lensbox::Jagged>);
}

TORCH_LIBRARY_IMPL(lensbox, CompositeExplicitAutograd, m) {
  m.impl("masked_giou_loss", lensbox::loss<lensbox::Masked>);
  m.impl("jagged_giou_loss", lensbox::loss<lensbox::Jagged>);
}
