// The masked and the jagged loss.

#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <algorithm>
#include <array>

#include "../backends.h"
#include "../checks.h"
#include "../slots.h"

namespace lensbox {
namespace {

void check_masked_arguments(const char* op, const Tensor& pred, const Tensor& target,
                            const std::optional<Tensor>& weight, double eps) {
  check_floating_dtype(op, "pred", pred);
  check_box_dtype(op, "target", target);
  check_last_dimension(op, "pred", pred);
  TORCH_CHECK(target.sym_sizes() == pred.sym_sizes(), op, ": target must have the shape of pred (",
              pred.sym_sizes(), "), got ", target.sym_sizes());
  check_same_device(op, "target", target, "pred", pred);
  if (weight.has_value()) {
    TORCH_CHECK_TYPE(is_box_dtype(weight->scalar_type()) || weight->scalar_type() == at::kBool, op,
                     ": weight must be a floating-point, integer or bool tensor, got ",
                     weight->scalar_type());
    TORCH_CHECK(weight->sym_sizes() == pred.sym_sizes().slice(0, pred.dim() - 1), op,
                ": weight must have the shape of pred without its last dimension (pred: ", pred.sym_sizes(),
                "), got ", weight->sym_sizes());
    check_same_device(op, "weight", *weight, "pred", pred);
  }
  check_eps(op, eps);
}

// Check shapes and dtypes; the kernels check the values of the offsets.
void check_jagged_arguments(const char* op, const Tensor& pred, const Tensor& targets, const Tensor& offsets,
                            double eps) {
  check_floating_dtype(op, "pred", pred);
  check_box_dtype(op, "targets", targets);
  TORCH_CHECK_TYPE(offsets.scalar_type() == at::kLong || offsets.scalar_type() == at::kInt, op,
                   ": offsets must be int64 or int32, got ", offsets.scalar_type());
  TORCH_CHECK(pred.dim() == 3 && pred.sym_size(2) == 4, op, ": pred must have shape [B, M, 4] (xyxy), got ",
              pred.sym_sizes());
  TORCH_CHECK(targets.dim() == 2 && targets.sym_size(1) == 4, op,
              ": targets must have shape [N, 4] (xyxy), got ", targets.sym_sizes());
  TORCH_CHECK(offsets.dim() == 1 && offsets.sym_size(0) == pred.sym_size(0) + 1, op,
              ": offsets must have shape [B + 1] for pred of shape [B, M, 4] (", pred.sym_sizes(), "), got ",
              offsets.sym_sizes());
  check_same_device(op, "targets", targets, "pred", pred);
  check_same_device(op, "offsets", offsets, "pred", pred);
  check_eps(op, eps);
}

// Check a scalar that the forward half of a loss returned.
void check_saved(const char* op, const char* name, const Tensor& saved, at::ScalarType dtype,
                 const Tensor& pred) {
  TORCH_CHECK_TYPE(saved.scalar_type() == dtype, op, ": ", name, " must be ", dtype, " for pred of ",
                   pred.scalar_type(), ", got ", saved.scalar_type());
  TORCH_CHECK(saved.dim() == 0, op, ": ", name, " must have shape [], got ", saved.sym_sizes());
  check_same_device(op, name, saved, "pred", pred);
}

// Return tensors for the loss and the normalizer.
std::tuple<Tensor, Tensor> scalars(const Tensor& pred, at::ScalarType loss_dtype) {
  return {at::empty({}, pred.options().dtype(loss_dtype)), at::empty({}, pred.options().dtype(at::kDouble))};
}

// The inputs as views, valid for the lifetime of this object.
struct MaskedInputs {
  Tensor pred, target, weight;
  MaskedProblem problem;

  MaskedInputs(const Tensor& pred_boxes, const Tensor& target_boxes, const std::optional<Tensor>& weights,
               double eps)
      : pred(viewable(pred_boxes, 1)),
        target(viewable(target_boxes, 1)),
        weight(weights.has_value() ? viewable(*weights, 0) : Tensor()),
        problem{box_slots(pred),
                box_slots(target),
                weights.has_value() ? number_slots(weight) : SlotView{},
                weights.has_value(),
                pred.numel() / 4,
                eps,
                math_dtype(pred, target, weights) == at::kDouble} {}
};

template <typename Backend>
std::tuple<Tensor, Tensor> masked_forward(const Tensor& pred, const Tensor& target,
                                          const std::optional<Tensor>& weight, double eps) {
  const Backend backend(pred);
  check_masked_arguments("lensbox::masked_giou_loss", pred, target, weight, eps);
  const auto [loss, normalizer] = scalars(pred, math_dtype(pred, target, weight));
  if constexpr (Backend::kHasKernels) {
    const MaskedInputs inputs(pred, target, weight, eps);
    backend.run_with_workspace(Backend::loss_workspace(inputs.problem.slots),
                               Backend::masked_giou_loss_forward, inputs.problem, loss.data_ptr(),
                               normalizer.template data_ptr<double>());
  }
  return {loss, normalizer};
}

template <typename Backend>
std::tuple<Tensor, Tensor, Tensor> masked_backward(const Tensor& grad, const Tensor& pred,
                                                   const Tensor& target, const std::optional<Tensor>& weight,
                                                   const std::optional<Tensor>& loss,
                                                   const Tensor& normalizer, double eps,
                                                   std::array<bool, 3> output_mask) {
  constexpr const char* op = "lensbox::_masked_giou_loss_backward";
  const Backend backend(pred);
  check_masked_arguments(op, pred, target, weight, eps);
  const at::ScalarType dtype = math_dtype(pred, target, weight);
  check_grad(op, grad, dtype, {}, "pred", pred);
  if (loss.has_value()) check_saved(op, "loss", *loss, dtype, pred);
  check_saved(op, "normalizer", normalizer, at::kDouble, pred);
  TORCH_CHECK_VALUE(weight.has_value() || !output_mask[2], op,
                    ": output_mask[2] must be False where weight is None, got True");
  TORCH_CHECK_VALUE(loss.has_value() || !output_mask[2], op,
                    ": loss must be given where output_mask[2] is True, got None");
  const Tensor& weighted_by = weight.has_value() ? *weight : pred;
  const Tensor grad_pred = gradient_of(op, 0, "pred", pred, pred.sym_sizes(), output_mask[0]);
  const Tensor grad_target = gradient_of(op, 1, "target", target, target.sym_sizes(), output_mask[1]);
  const Tensor grad_weight =
      gradient_of(op, 2, "weight", weighted_by, weighted_by.sym_sizes(), output_mask[2]);
  if constexpr (Backend::kHasKernels) {
    const MaskedInputs inputs(pred, target, weight, eps);
    const MaskedGradients out = {box_slots(grad_pred), box_slots(grad_target), number_slots(grad_weight)};
    backend.run(Backend::masked_giou_loss_backward, inputs.problem, number_slots(grad),
                loss.has_value() ? loss->const_data_ptr() : nullptr, normalizer.const_data_ptr<double>(),
                out);
  }
  return {grad_pred, grad_target, grad_weight};
}

template <typename Backend>
std::tuple<Tensor, Tensor> masked_loss_and_grad(const Tensor& pred, const Tensor& target,
                                                const std::optional<Tensor>& weight, double eps) {
  constexpr const char* op = "lensbox::masked_giou_loss_and_grad";
  const Backend backend(pred);
  check_masked_arguments(op, pred, target, weight, eps);
  const auto [loss, normalizer] = scalars(pred, math_dtype(pred, target, weight));
  const Tensor grad = gradient_of(op, 0, "pred", pred, pred.sym_sizes(), true);
  if constexpr (Backend::kHasKernels) {
    const MaskedInputs inputs(pred, target, weight, eps);
    backend.run_with_workspace(Backend::loss_workspace(inputs.problem.slots),
                               Backend::masked_giou_loss_and_grad, inputs.problem, loss.data_ptr(),
                               normalizer.template data_ptr<double>(), box_slots(grad));
  }
  return {loss, grad};
}

JaggedProblem jagged_problem(const Tensor& pred, const Tensor& targets, const Tensor& offsets, double eps) {
  return {box_slots(pred),
          box_slots(targets),
          number_slots(offsets),
          pred.size(0),
          pred.size(1),
          targets.size(0),
          eps,
          math_dtype(pred, targets) == at::kDouble};
}

// On the CPU the offsets can be read, so a broken rule is an error.
void check_offsets(const char* op, const JaggedProblem& problem, const Tensor& offsets) {
  const int64_t image = lensbox_cpu_first_invalid_segment(problem);
  if (image < 0) return;
  const auto offset = [&](int64_t i) { return offsets[i].item<int64_t>(); };
  TORCH_CHECK_VALUE(problem.images > 0 || problem.target_count == 0, op,
                    ": targets must be empty where pred has no images, got ", problem.target_count,
                    " targets");
  TORCH_CHECK_VALUE(problem.images > 0, op,
                    ": offsets must be [0] where pred has no images, got offsets[0] = ", offset(0));
  TORCH_CHECK_VALUE(false, op, ": offsets must start at 0, never fall, end at the number of targets (",
                    problem.target_count, ") and give no image more targets than pred has slots (",
                    problem.slots, "), got offsets[", image, "] = ", offset(image), ", offsets[", image + 1,
                    "] = ", offset(image + 1));
}

template <typename Backend>
std::tuple<Tensor, Tensor> jagged_forward(const Tensor& pred, const Tensor& targets, const Tensor& offsets,
                                          double eps) {
  constexpr const char* op = "lensbox::jagged_giou_loss";
  const Backend backend(pred);
  check_jagged_arguments(op, pred, targets, offsets, eps);
  const auto [loss, normalizer] = scalars(pred, math_dtype(pred, targets));
  if constexpr (Backend::kHasKernels) {
    const JaggedProblem problem = jagged_problem(pred, targets, offsets, eps);
    if constexpr (!Backend::kIsCuda) check_offsets(op, problem, offsets);
    backend.run_with_workspace(Backend::loss_workspace(problem.images * problem.slots),
                               Backend::jagged_giou_loss_forward, problem, loss.data_ptr(),
                               normalizer.template data_ptr<double>());
  }
  return {loss, normalizer};
}

template <typename Backend>
std::tuple<Tensor, Tensor> jagged_backward(const Tensor& grad, const Tensor& pred, const Tensor& targets,
                                           const Tensor& offsets, const Tensor& normalizer, double eps,
                                           std::array<bool, 2> output_mask) {
  constexpr const char* op = "lensbox::_jagged_giou_loss_backward";
  const Backend backend(pred);
  check_jagged_arguments(op, pred, targets, offsets, eps);
  check_grad(op, grad, math_dtype(pred, targets), {}, "pred", pred);
  check_saved(op, "normalizer", normalizer, at::kDouble, pred);
  const Tensor grad_pred = gradient_of(op, 0, "pred", pred, pred.sym_sizes(), output_mask[0]);
  const Tensor grad_targets = gradient_of(op, 1, "targets", targets, targets.sym_sizes(), output_mask[1]);
  if constexpr (Backend::kHasKernels) {
    const JaggedProblem problem = jagged_problem(pred, targets, offsets, eps);
    if constexpr (!Backend::kIsCuda) check_offsets(op, problem, offsets);
    backend.run(Backend::jagged_giou_loss_backward, problem, number_slots(grad),
                normalizer.const_data_ptr<double>(), box_slots(grad_pred), box_slots(grad_targets));
  }
  return {grad_pred, grad_targets};
}

template <typename Backend>
void register_losses(torch::Library& m) {
  m.impl("_masked_giou_loss_forward", masked_forward<Backend>);
  m.impl("_masked_giou_loss_backward", masked_backward<Backend>);
  m.impl("masked_giou_loss_and_grad", masked_loss_and_grad<Backend>);
  m.impl("_jagged_giou_loss_forward", jagged_forward<Backend>);
  m.impl("_jagged_giou_loss_backward", jagged_backward<Backend>);
}

}  // namespace
}  // namespace lensbox

LENSBOX_BINDINGS(register_losses)
