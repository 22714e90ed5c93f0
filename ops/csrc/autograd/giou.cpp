#include <torch/csrc/autograd/autograd_not_implemented_fallback.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "../ops.h"
#include "derivatives.h"

namespace lensbox {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

class GiouFunction : public torch::autograd::Function<GiouFunction> {
 public:
  static Tensor forward(AutogradContext* context, const Tensor& boxes1, const Tensor& boxes2, double eps) {
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    context->save_for_backward({boxes1, boxes2});
    context->saved_data["eps"] = eps;
    return giou(boxes1, boxes2, eps);
  }

  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    const auto saved = context->get_saved_variables();
    const BelowAutogradInBackward below_autograd;
    const std::array<bool, 2> mask = {context->needs_input_grad(0), context->needs_input_grad(1)};
    const auto [grad1, grad2] =
        giou_backward(grads[0], saved[0], saved[1], context->saved_data["eps"].toDouble(), mask);
    // The op gives gradients of the broadcast shape.
    return {mask[0] ? sum_of_copies(grad1, saved[0]) : Tensor(),
            mask[1] ? sum_of_copies(grad2, saved[1]) : Tensor(), Tensor()};
  }
};

Tensor giou_autograd(const Tensor& boxes1, const Tensor& boxes2, double eps) {
  if (!needs_autograd(boxes1, boxes2)) {
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    return giou(boxes1, boxes2, eps);
  }
  return GiouFunction::apply(boxes1, boxes2, eps);
}

}  // namespace
}  // namespace lensbox

TORCH_LIBRARY_IMPL(lensbox, Autograd, m) {
  m.impl("giou", lensbox::giou_autograd);
  // Second derivatives are not offered; asking for one says so.
  m.impl("_giou_backward", torch::autograd::autogradNotImplementedFallback());
}
