// The derivatives of `giou` and `pairwise_giou`, which differ in the ops that they call.

#include <ATen/ExpandUtils.h>

#include "derivatives.h"

namespace lensbox {
namespace {

struct Elementwise {
  static constexpr const char *forward = "lensbox::giou", *backward = "lensbox::_giou_backward";
};

struct Pairwise {
  static constexpr const char *forward = "lensbox::pairwise_giou",
                              *backward = "lensbox::_pairwise_giou_backward";
};

template <typename Op>
Tensor call_forward(const Tensor& boxes1, const Tensor& boxes2, double eps) {
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  static const auto op = find_op<Tensor(const Tensor&, const Tensor&, double)>(Op::forward);
  return op.call(boxes1, boxes2, eps);
}

template <typename Op>
class GiouFunction : public torch::autograd::Function<GiouFunction<Op>> {
 public:
  static Tensor forward(AutogradContext* context, const Tensor& boxes1, const Tensor& boxes2, double eps) {
    context->save_for_backward({boxes1, boxes2});
    context->saved_data["eps"] = eps;
    return call_forward<Op>(boxes1, boxes2, eps);
  }

  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    const auto saved = context->get_saved_variables();
    const BelowAutogradInBackward below_autograd;
    const std::array<bool, 2> mask = {context->needs_input_grad(0), context->needs_input_grad(1)};
    static const auto op = find_op<std::tuple<Tensor, Tensor>(const Tensor&, const Tensor&, const Tensor&,
                                                              double, std::array<bool, 2>)>(Op::backward);
    const auto [grad1, grad2] =
        op.call(grads[0], saved[0], saved[1], context->saved_data["eps"].toDouble(), mask);
    // The op gives gradients of the broadcast shape.
    return {mask[0] ? at::sum_to(grad1, saved[0].sym_sizes()) : Tensor(),
            mask[1] ? at::sum_to(grad2, saved[1].sym_sizes()) : Tensor(), Tensor()};
  }
};

template <typename Op>
Tensor giou_autograd(const Tensor& boxes1, const Tensor& boxes2, double eps) {
  if (!needs_autograd(boxes1, boxes2)) return call_forward<Op>(boxes1, boxes2, eps);
  return GiouFunction<Op>::apply(boxes1, boxes2, eps);
}

}  // namespace
}  // namespace lensbox

TORCH_LIBRARY_IMPL(lensbox, Autograd, m) {
  m.impl("giou", lensbox::giou_autograd<lensbox::Elementwise>);
  m.impl("pairwise_giou", lensbox::giou_autograd<lensbox::Pairwise>);
}
