// The bindings of the masked and the jagged loss.

#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <algorithm>
#include <array>

#include "../backends.h"
#include "../checks.h"
#include "../outputs.h"
#include "../slots.h"

namespace lensbox {
namespace {

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
                math_dtype(pred, target) == at::kDouble} {}
};

template <typename Backend>
std::tuple<Tensor, Tensor> masked_forward(const Tensor& pred, const Tensor& target,
                                          const std::optional<Tensor>& weight, double eps) {
  const Backend backend(pred);
  const auto [loss, normalizer] = masked_giou_loss_forward_outputs(pred, target, weight, eps);
  const MaskedInputs inputs(pred, target, weight, eps);
  backend.run_with_workspace(Backend::loss_workspace(inputs.problem.slots), Backend::masked_giou_loss_forward,
                             inputs.problem, loss.data_ptr(), normalizer.template data_ptr<double>());
  return {loss, normalizer};
}

template <typename Backend>
std::tuple<Tensor, Tensor, Tensor> masked_backward(const Tensor& grad, const Tensor& pred,
                                                   const Tensor& target, const std::optional<Tensor>& weight,
                                                   const std::optional<Tensor>& loss,
                                                   const Tensor& normalizer, double eps,
                                                   std::array<bool, 3> output_mask) {
  const Backend backend(pred);
  const auto [grad_pred, grad_target, grad_weight] =
      masked_giou_loss_backward_outputs(grad, pred, target, weight, loss, normalizer, eps, output_mask);
  const MaskedInputs inputs(pred, target, weight, eps);
  const SlotView pred_out = box_slots(grad_pred), target_out = box_slots(grad_target),
                 weight_out = number_slots(grad_weight);
  const MaskedGradients out = {output_mask[0] ? &pred_out : nullptr, output_mask[1] ? &target_out : nullptr,
                               output_mask[2] ? &weight_out : nullptr};
  backend.run(Backend::masked_giou_loss_backward, inputs.problem, number_slots(grad),
              loss.has_value() ? loss->const_data_ptr() : nullptr, normalizer.const_data_ptr<double>(), out);
  return {grad_pred, grad_target, grad_weight};
}

template <typename Backend>
std::tuple<Tensor, Tensor> masked_loss_and_grad(const Tensor& pred, const Tensor& target,
                                                const std::optional<Tensor>& weight, double eps) {
  const Backend backend(pred);
  const auto [loss, grad] = masked_giou_loss_and_grad_outputs(pred, target, weight, eps);
  const Tensor normalizer = at::empty({}, loss.options().dtype(at::kDouble));
  const MaskedInputs inputs(pred, target, weight, eps);
  backend.run_with_workspace(Backend::loss_workspace(inputs.problem.slots),
                             Backend::masked_giou_loss_and_grad, inputs.problem, loss.data_ptr(),
                             normalizer.data_ptr<double>(), box_slots(grad));
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
  const Backend backend(pred);
  const auto [loss, normalizer] = jagged_giou_loss_forward_outputs(pred, targets, offsets, eps);
  const JaggedProblem problem = jagged_problem(pred, targets, offsets, eps);
  if constexpr (!Backend::kIsCuda) check_offsets("lensbox::jagged_giou_loss", problem, offsets);
  backend.run_with_workspace(Backend::loss_workspace(std::max(problem.target_count, problem.images)),
                             Backend::jagged_giou_loss_forward, problem, loss.data_ptr(),
                             normalizer.template data_ptr<double>());
  return {loss, normalizer};
}

template <typename Backend>
std::tuple<Tensor, Tensor> jagged_backward(const Tensor& grad, const Tensor& pred, const Tensor& targets,
                                           const Tensor& offsets, const Tensor& normalizer, double eps,
                                           std::array<bool, 2> output_mask) {
  const Backend backend(pred);
  const auto [grad_pred, grad_targets] =
      jagged_giou_loss_backward_outputs(grad, pred, targets, offsets, normalizer, eps, output_mask);
  const JaggedProblem problem = jagged_problem(pred, targets, offsets, eps);
  if constexpr (!Backend::kIsCuda) check_offsets("lensbox::_jagged_giou_loss_backward", problem, offsets);
  const SlotView pred_out = box_slots(grad_pred), target_out = box_slots(grad_targets);
  backend.run(Backend::jagged_giou_loss_backward, problem, number_slots(grad),
              normalizer.const_data_ptr<double>(), output_mask[0] ? &pred_out : nullptr,
              output_mask[1] ? &target_out : nullptr);
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
