#include "outputs.h"

#include <ATen/ops/empty.h>
#include <torch/library.h>

#include "checks.h"
#include "slots.h"

namespace lensbox {
namespace {

at::SymDimVector with_tail(at::SymDimVector shape, std::initializer_list<c10::SymInt> tail) {
  shape.append(tail.begin(), tail.end());
  return shape;
}

// Return a contiguous tensor for a gradient, or a tensor without elements if it was not requested.
Tensor gradient_of(const Tensor& input, c10::SymIntArrayRef shape, bool wanted) {
  return wanted ? at::empty_symint(shape, input.options()) : at::empty({0}, input.options());
}

}  // namespace

Tensor giou_outputs(const Tensor& boxes1, const Tensor& boxes2, double eps) {
  constexpr const char* op = "lensbox::giou";
  check_box_pair(op, boxes1, boxes2);
  check_eps(op, eps);
  return at::empty_symint(broadcast_leading(boxes1, boxes2, 1),
                          boxes1.options().dtype(giou_dtype(boxes1, boxes2)));
}

std::tuple<Tensor, Tensor> giou_backward_outputs(const Tensor& grad, const Tensor& boxes1,
                                                 const Tensor& boxes2, double eps,
                                                 std::array<bool, 2> output_mask) {
  constexpr const char* op = "lensbox::_giou_backward";
  check_box_pair(op, boxes1, boxes2);
  check_eps(op, eps);
  check_wanted(op, output_mask[0], 0, "boxes1", boxes1);
  check_wanted(op, output_mask[1], 1, "boxes2", boxes2);
  const auto slots = broadcast_leading(boxes1, boxes2, 1);
  check_grad(op, grad, slots, "boxes1", boxes1);
  const auto shape = with_tail(slots, {4});
  return {gradient_of(boxes1, shape, output_mask[0]), gradient_of(boxes2, shape, output_mask[1])};
}

Tensor pairwise_giou_outputs(const Tensor& boxes1, const Tensor& boxes2, double eps) {
  constexpr const char* op = "lensbox::pairwise_giou";
  check_box_matrices(op, boxes1, boxes2);
  check_eps(op, eps);
  const auto shape =
      with_tail(broadcast_leading(boxes1, boxes2, 2), {boxes1.sym_size(-2), boxes2.sym_size(-2)});
  return at::empty_symint(shape, boxes1.options().dtype(giou_dtype(boxes1, boxes2)));
}

std::tuple<Tensor, Tensor> pairwise_giou_backward_outputs(const Tensor& grad, const Tensor& boxes1,
                                                          const Tensor& boxes2, double eps,
                                                          std::array<bool, 2> output_mask) {
  constexpr const char* op = "lensbox::_pairwise_giou_backward";
  check_box_matrices(op, boxes1, boxes2);
  check_eps(op, eps);
  check_wanted(op, output_mask[0], 0, "boxes1", boxes1);
  check_wanted(op, output_mask[1], 1, "boxes2", boxes2);
  const auto batch = broadcast_leading(boxes1, boxes2, 2);
  check_grad(op, grad, with_tail(batch, {boxes1.sym_size(-2), boxes2.sym_size(-2)}), "boxes1", boxes1);
  return {gradient_of(boxes1, with_tail(batch, {boxes1.sym_size(-2), 4}), output_mask[0]),
          gradient_of(boxes2, with_tail(batch, {boxes2.sym_size(-2), 4}), output_mask[1])};
}

std::tuple<Tensor, Tensor> masked_giou_loss_forward_outputs(const Tensor& pred, const Tensor& target,
                                                            const std::optional<Tensor>& weight, double eps) {
  check_loss_arguments("lensbox::masked_giou_loss", pred, target, weight, eps);
  return {at::empty({}, pred.options().dtype(math_dtype(pred, target))),
          at::empty({}, pred.options().dtype(at::kDouble))};
}

std::tuple<Tensor, Tensor, Tensor> masked_giou_loss_backward_outputs(const Tensor& grad, const Tensor& pred,
                                                                     const Tensor& target,
                                                                     const std::optional<Tensor>& weight,
                                                                     const std::optional<Tensor>& loss,
                                                                     const Tensor& normalizer, double eps,
                                                                     std::array<bool, 3> output_mask) {
  constexpr const char* op = "lensbox::_masked_giou_loss_backward";
  check_loss_arguments(op, pred, target, weight, eps);
  check_grad(op, grad, {}, "pred", pred);
  if (loss.has_value()) check_saved(op, "loss", *loss, math_dtype(pred, target), pred);
  check_saved(op, "normalizer", normalizer, at::kDouble, pred);
  check_wanted(op, output_mask[1], 1, "target", target);
  TORCH_CHECK_VALUE(weight.has_value() || !output_mask[2], op,
                    ": output_mask[2] must be False where weight is None, got True");
  TORCH_CHECK_VALUE(loss.has_value() || !output_mask[2], op,
                    ": loss must be given where output_mask[2] is True, got None");
  if (weight.has_value()) check_wanted(op, output_mask[2], 2, "weight", *weight);
  const Tensor& weighted_by = weight.has_value() ? *weight : pred;
  return {gradient_of(pred, pred.sym_sizes(), output_mask[0]),
          gradient_of(target, target.sym_sizes(), output_mask[1]),
          gradient_of(weighted_by, weighted_by.sym_sizes(), output_mask[2])};
}

std::tuple<Tensor, Tensor> masked_giou_loss_and_grad_outputs(const Tensor& pred, const Tensor& target,
                                                             const std::optional<Tensor>& weight,
                                                             double eps) {
  check_loss_arguments("lensbox::masked_giou_loss_and_grad", pred, target, weight, eps);
  return {at::empty({}, pred.options().dtype(math_dtype(pred, target))),
          gradient_of(pred, pred.sym_sizes(), true)};
}

std::tuple<Tensor, Tensor> jagged_giou_loss_forward_outputs(const Tensor& pred, const Tensor& targets,
                                                            const Tensor& offsets, double eps) {
  check_jagged_arguments("lensbox::jagged_giou_loss", pred, targets, offsets, eps);
  return {at::empty({}, pred.options().dtype(math_dtype(pred, targets))),
          at::empty({}, pred.options().dtype(at::kDouble))};
}

std::tuple<Tensor, Tensor> jagged_giou_loss_backward_outputs(const Tensor& grad, const Tensor& pred,
                                                             const Tensor& targets, const Tensor& offsets,
                                                             const Tensor& normalizer, double eps,
                                                             std::array<bool, 2> output_mask) {
  constexpr const char* op = "lensbox::_jagged_giou_loss_backward";
  check_jagged_arguments(op, pred, targets, offsets, eps);
  check_grad(op, grad, {}, "pred", pred);
  check_saved(op, "normalizer", normalizer, at::kDouble, pred);
  check_wanted(op, output_mask[1], 1, "targets", targets);
  return {gradient_of(pred, pred.sym_sizes(), output_mask[0]),
          gradient_of(targets, targets.sym_sizes(), output_mask[1])};
}

std::tuple<Tensor, Tensor, Tensor, Tensor> padded_nms_outputs(const Tensor& boxes, const Tensor& scores,
                                                              double iou_threshold, double score_threshold,
                                                              c10::SymInt max_candidates,
                                                              c10::SymInt max_detections,
                                                              const std::optional<Tensor>& categories) {
  check_nms_arguments(boxes, scores, iou_threshold, score_threshold, max_candidates, max_detections,
                      categories);
  const c10::SymInt batch = boxes.sym_size(0);
  return {at::empty_symint({batch, max_detections, 4}, boxes.options()),
          at::empty_symint({batch, max_detections}, scores.options()),
          at::empty_symint({batch, max_detections}, boxes.options().dtype(at::kLong)),
          at::empty_symint({batch}, boxes.options().dtype(at::kInt))};
}

std::tuple<Tensor, Tensor> fit_outputs(at::TensorList images, int64_t height, int64_t width,
                                       const FitOptions& options) {
  const auto batch = static_cast<int64_t>(images.size());
  const auto tensors = at::TensorOptions().device(images[0].device());
  return {at::empty({batch, options.channels, height, width}, tensors.dtype(options.dtype)),
          at::empty({batch, 6}, tensors.dtype(at::kFloat))};
}

namespace {

std::tuple<Tensor, Tensor> meta_fit(at::TensorList images, int64_t height, int64_t width,
                                    std::string_view fit, std::string_view filter, std::string_view order,
                                    int64_t fill, std::optional<at::ArrayRef<double>> mean,
                                    std::optional<at::ArrayRef<double>> deviation,
                                    std::optional<at::ScalarType> dtype) {
  return fit_outputs(
      images, height, width,
      check_fit_arguments(images, height, width, fit, filter, order, fill, mean, deviation, dtype));
}

}  // namespace
}  // namespace lensbox

TORCH_LIBRARY_IMPL(lensbox, Meta, m) {
  m.impl("giou", lensbox::giou_outputs);
  m.impl("_giou_backward", lensbox::giou_backward_outputs);
  m.impl("pairwise_giou", lensbox::pairwise_giou_outputs);
  m.impl("_pairwise_giou_backward", lensbox::pairwise_giou_backward_outputs);
  m.impl("_masked_giou_loss_forward", lensbox::masked_giou_loss_forward_outputs);
  m.impl("_masked_giou_loss_backward", lensbox::masked_giou_loss_backward_outputs);
  m.impl("masked_giou_loss_and_grad", lensbox::masked_giou_loss_and_grad_outputs);
  m.impl("_jagged_giou_loss_forward", lensbox::jagged_giou_loss_forward_outputs);
  m.impl("_jagged_giou_loss_backward", lensbox::jagged_giou_loss_backward_outputs);
  m.impl("padded_nms", lensbox::padded_nms_outputs);
  m.impl("fit", lensbox::meta_fit);
}
