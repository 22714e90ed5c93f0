// The bindings of `giou` and `pairwise_giou`.

#include <torch/library.h>

#include <array>

#include "../backends.h"
#include "../checks.h"
#include "../outputs.h"
#include "../slots.h"

namespace lensbox {
namespace {

bool in_double(const Tensor& a, const Tensor& b) {
  return math_dtype(a, b) == at::kDouble;
}

template <typename Backend>
Tensor giou(const Tensor& boxes1, const Tensor& boxes2, double eps) {
  const Backend backend(boxes1);
  const Tensor out = giou_outputs(boxes1, boxes2, eps);
  const Tensor a = expand_leading(boxes1, out.sym_sizes(), 1), b = expand_leading(boxes2, out.sym_sizes(), 1);
  backend.run(Backend::giou, box_slots(a), box_slots(b), eps, in_double(a, b), out.numel(),
              number_slots(out));
  return out;
}

template <typename Backend>
std::tuple<Tensor, Tensor> giou_backward(const Tensor& grad, const Tensor& boxes1, const Tensor& boxes2,
                                         double eps, std::array<bool, 2> output_mask) {
  const Backend backend(boxes1);
  const auto [grad1, grad2] = giou_backward_outputs(grad, boxes1, boxes2, eps, output_mask);
  const Tensor a = expand_leading(boxes1, grad.sym_sizes(), 1),
               b = expand_leading(boxes2, grad.sym_sizes(), 1);
  const Tensor upstream = viewable(grad, 0);
  const SlotView out1 = box_slots(grad1), out2 = box_slots(grad2);
  backend.run(Backend::giou_backward, number_slots(upstream), box_slots(a), box_slots(b), eps,
              in_double(a, b), grad.numel(), output_mask[0] ? &out1 : nullptr,
              output_mask[1] ? &out2 : nullptr);
  return {grad1, grad2};
}

template <typename Backend>
Tensor pairwise_giou(const Tensor& boxes1, const Tensor& boxes2, double eps) {
  const Backend backend(boxes1);
  const Tensor out = pairwise_giou_outputs(boxes1, boxes2, eps);
  const auto batch = broadcast_leading(boxes1, boxes2, 2);
  const Tensor a = expand_leading(boxes1, batch, 2), b = expand_leading(boxes2, batch, 2);
  backend.run(Backend::pairwise_giou, pairwise_problem(a, b), eps, in_double(a, b), number_slots(out));
  return out;
}

template <typename Backend>
std::tuple<Tensor, Tensor> pairwise_giou_backward(const Tensor& grad, const Tensor& boxes1,
                                                  const Tensor& boxes2, double eps,
                                                  std::array<bool, 2> output_mask) {
  const Backend backend(boxes1);
  const auto [grad1, grad2] = pairwise_giou_backward_outputs(grad, boxes1, boxes2, eps, output_mask);
  const auto batch = broadcast_leading(boxes1, boxes2, 2);
  const Tensor a = expand_leading(boxes1, batch, 2), b = expand_leading(boxes2, batch, 2);
  const Tensor upstream = viewable(grad, 0);
  const SlotView out1 = box_slots(grad1), out2 = box_slots(grad2);
  backend.run(Backend::pairwise_giou_backward, number_slots(upstream), pairwise_problem(a, b), eps,
              in_double(a, b), output_mask[0] ? &out1 : nullptr, output_mask[1] ? &out2 : nullptr);
  return {grad1, grad2};
}

template <typename Backend>
void register_giou(torch::Library& m) {
  m.impl("giou", giou<Backend>);
  m.impl("_giou_backward", giou_backward<Backend>);
  m.impl("pairwise_giou", pairwise_giou<Backend>);
  m.impl("_pairwise_giou_backward", pairwise_giou_backward<Backend>);
}

}  // namespace
}  // namespace lensbox

LENSBOX_BINDINGS(register_giou)
