// `giou` and `pairwise_giou`.

#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <array>

#include "../backends.h"
#include "../checks.h"
#include "../slots.h"

namespace lensbox {
namespace {

// Check boxes of supported dtypes on one device. The broadcast checks the leading dimensions.
void check_pair(const char* op, const Tensor& boxes1, const Tensor& boxes2, double eps) {
  check_box_dtype(op, "boxes1", boxes1);
  check_box_dtype(op, "boxes2", boxes2);
  check_last_dimension(op, "boxes1", boxes1);
  check_last_dimension(op, "boxes2", boxes2);
  check_same_device(op, "boxes2", boxes2, "boxes1", boxes1);
  check_eps(op, eps);
}

void check_matrices(const char* op, const Tensor& boxes1, const Tensor& boxes2, double eps) {
  check_pair(op, boxes1, boxes2, eps);
  TORCH_CHECK(boxes1.dim() >= 2, op, ": boxes1 must have shape [..., N, 4], got ", boxes1.sym_sizes());
  TORCH_CHECK(boxes2.dim() >= 2, op, ": boxes2 must have shape [..., M, 4], got ", boxes2.sym_sizes());
}

// Return the dtype of an output: the floating-point dtype that both inputs promote to; float32 if both hold
// integers.
at::ScalarType giou_dtype(const Tensor& boxes1, const Tensor& boxes2) {
  const at::ScalarType promoted = c10::promoteTypes(boxes1.scalar_type(), boxes2.scalar_type());
  return at::isFloatingType(promoted) ? promoted : at::kFloat;
}

Tensor empty_gious(const Tensor& boxes1, const Tensor& boxes2, c10::SymIntArrayRef shape) {
  return at::empty_symint(shape, boxes1.options().dtype(giou_dtype(boxes1, boxes2)));
}

at::SymDimVector with_tail(at::SymDimVector shape, std::initializer_list<c10::SymInt> tail) {
  shape.append(tail.begin(), tail.end());
  return shape;
}

bool in_double(const Tensor& a, const Tensor& b) {
  return math_dtype(a, b) == at::kDouble;
}

// [..., N, 4] and [..., M, 4], with common leading dimensions, made by expand_leading().
PairwiseProblem pairwise_problem(const Tensor& boxes1, const Tensor& boxes2) {
  return {box_slots(boxes1), box_slots(boxes2),
          c10::multiply_integers(boxes1.sizes().slice(0, boxes1.dim() - 2)), boxes1.size(-2),
          boxes2.size(-2)};
}

template <typename Backend>
Tensor giou(const Tensor& boxes1, const Tensor& boxes2, double eps) {
  const Backend backend(boxes1);
  check_pair("lensbox::giou", boxes1, boxes2, eps);
  const auto slots = broadcast_leading(boxes1, boxes2, 1);
  const Tensor out = empty_gious(boxes1, boxes2, slots);
  if constexpr (Backend::kHasKernels) {
    const Tensor a = expand_leading(boxes1, slots, 1), b = expand_leading(boxes2, slots, 1);
    backend.run(Backend::giou, box_slots(a), box_slots(b), eps, in_double(a, b), out.numel(),
                number_slots(out));
  }
  return out;
}

// The gradients have the leading dimensions broadcast.
template <typename Backend>
std::tuple<Tensor, Tensor> giou_backward(const Tensor& grad, const Tensor& boxes1, const Tensor& boxes2,
                                         double eps, std::array<bool, 2> output_mask) {
  constexpr const char* op = "lensbox::_giou_backward";
  const Backend backend(boxes1);
  check_pair(op, boxes1, boxes2, eps);
  const auto slots = broadcast_leading(boxes1, boxes2, 1);
  check_grad(op, grad, giou_dtype(boxes1, boxes2), slots, "boxes1", boxes1);
  const auto shape = with_tail(slots, {4});
  const Tensor grad1 = gradient_of(op, 0, "boxes1", boxes1, shape, output_mask[0]);
  const Tensor grad2 = gradient_of(op, 1, "boxes2", boxes2, shape, output_mask[1]);
  if constexpr (Backend::kHasKernels) {
    const Tensor a = expand_leading(boxes1, slots, 1), b = expand_leading(boxes2, slots, 1);
    const Tensor upstream = viewable(grad, 0);
    backend.run(Backend::giou_backward, number_slots(upstream), box_slots(a), box_slots(b), eps,
                in_double(a, b), grad.numel(), box_slots(grad1), box_slots(grad2));
  }
  return {grad1, grad2};
}

template <typename Backend>
Tensor pairwise_giou(const Tensor& boxes1, const Tensor& boxes2, double eps) {
  const Backend backend(boxes1);
  check_matrices("lensbox::pairwise_giou", boxes1, boxes2, eps);
  const auto batch = broadcast_leading(boxes1, boxes2, 2);
  const auto pairs = with_tail(batch, {boxes1.sym_size(-2), boxes2.sym_size(-2)});
  const Tensor out = empty_gious(boxes1, boxes2, pairs);
  if constexpr (Backend::kHasKernels) {
    const Tensor a = expand_leading(boxes1, batch, 2), b = expand_leading(boxes2, batch, 2);
    backend.run(Backend::pairwise_giou, pairwise_problem(a, b), eps, in_double(a, b), number_slots(out));
  }
  return out;
}

template <typename Backend>
std::tuple<Tensor, Tensor> pairwise_giou_backward(const Tensor& grad, const Tensor& boxes1,
                                                  const Tensor& boxes2, double eps,
                                                  std::array<bool, 2> output_mask) {
  constexpr const char* op = "lensbox::_pairwise_giou_backward";
  const Backend backend(boxes1);
  check_matrices(op, boxes1, boxes2, eps);
  const auto batch = broadcast_leading(boxes1, boxes2, 2);
  const c10::SymInt rows = boxes1.sym_size(-2), columns = boxes2.sym_size(-2);
  check_grad(op, grad, giou_dtype(boxes1, boxes2), with_tail(batch, {rows, columns}), "boxes1", boxes1);
  const Tensor grad1 = gradient_of(op, 0, "boxes1", boxes1, with_tail(batch, {rows, 4}), output_mask[0]);
  const Tensor grad2 = gradient_of(op, 1, "boxes2", boxes2, with_tail(batch, {columns, 4}), output_mask[1]);
  if constexpr (Backend::kHasKernels) {
    const Tensor a = expand_leading(boxes1, batch, 2), b = expand_leading(boxes2, batch, 2);
    const Tensor upstream = viewable(grad, 0);
    backend.run(Backend::pairwise_giou_backward, number_slots(upstream), pairwise_problem(a, b), eps,
                in_double(a, b), box_slots(grad1), box_slots(grad2));
  }
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
