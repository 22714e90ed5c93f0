// The bindings of the masked and the jagged loss.

#include <ATen/ops/empty.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/library.h>

#include <algorithm>
#include <array>

#include "../checks.h"
#include "../outputs.h"
#include "../slots.h"
#include "launch.h"
#include "launchers.h"

namespace lensbox {
namespace {

// What a forward launch needs beside its inputs; empty for a launch of one block.
struct LossWorkspace {
  c10::DataPtr memory;     // from torch's allocator; a tensor would take longer to make
  double* sums = nullptr;  // two for each block
  unsigned int* ticket = nullptr;
};

// On the current device, for a launch on `stream` of at most so many threads that have work.
LossWorkspace make_loss_workspace(c10::cuda::CUDAStream stream, int64_t threads) {
  const size_t blocks = loss_shape(threads).blocks.x;
  if (blocks == 1) return {};
  const size_t bytes = 2 * blocks * sizeof(double) + kMaxTickets * sizeof(unsigned int);
  LossWorkspace workspace = {c10::cuda::CUDACachingAllocator::get()->allocate(bytes)};
  workspace.sums = static_cast<double*>(workspace.memory.get());
  auto* const spare = reinterpret_cast<unsigned int*>(workspace.sums + 2 * blocks);
  C10_CUDA_CHECK(take_tickets(stream, spare, &workspace.ticket));
  return workspace;
}

// The inputs as views. They are valid while this is.
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

std::tuple<Tensor, Tensor> masked_giou_loss_forward_cuda(const Tensor& pred, const Tensor& target,
                                                         const std::optional<Tensor>& weight, double eps) {
  const c10::cuda::CUDAGuard device(pred.device());
  const auto [loss, normalizer] = masked_giou_loss_forward_outputs(pred, target, weight, eps);
  const MaskedInputs inputs(pred, target, weight, eps);
  const c10::cuda::CUDAStream stream = c10::cuda::getCurrentCUDAStream();
  const LossWorkspace workspace = make_loss_workspace(stream, inputs.problem.slots);
  C10_CUDA_CHECK(launch_masked_giou_loss_forward(inputs.problem, workspace.sums, workspace.ticket,
                                                 loss.data_ptr(), normalizer.data_ptr<double>(), stream));
  return {loss, normalizer};
}

std::tuple<Tensor, Tensor, Tensor> masked_giou_loss_backward_cuda(const Tensor& grad, const Tensor& pred,
                                                                  const Tensor& target,
                                                                  const std::optional<Tensor>& weight,
                                                                  const std::optional<Tensor>& loss,
                                                                  const Tensor& normalizer, double eps,
                                                                  std::array<bool, 3> output_mask) {
  const c10::cuda::CUDAGuard device(pred.device());
  const auto [grad_pred, grad_target, grad_weight] =
      masked_giou_loss_backward_outputs(grad, pred, target, weight, loss, normalizer, eps, output_mask);
  const MaskedInputs inputs(pred, target, weight, eps);
  const SlotView pred_out = box_slots(grad_pred), target_out = box_slots(grad_target),
                 weight_out = number_slots(grad_weight);
  const MaskedGradients out = {output_mask[0] ? &pred_out : nullptr, output_mask[1] ? &target_out : nullptr,
                               output_mask[2] ? &weight_out : nullptr};
  C10_CUDA_CHECK(launch_masked_giou_loss_backward(
      inputs.problem, number_slots(grad), loss.has_value() ? loss->const_data_ptr() : nullptr,
      normalizer.const_data_ptr<double>(), out, c10::cuda::getCurrentCUDAStream()));
  return {grad_pred, grad_target, grad_weight};
}

std::tuple<Tensor, Tensor> masked_giou_loss_and_grad_cuda(const Tensor& pred, const Tensor& target,
                                                          const std::optional<Tensor>& weight, double eps) {
  const c10::cuda::CUDAGuard device(pred.device());
  const auto [loss, grad] = masked_giou_loss_and_grad_outputs(pred, target, weight, eps);
  const Tensor normalizer = at::empty({}, loss.options().dtype(at::kDouble));
  const MaskedInputs inputs(pred, target, weight, eps);
  const c10::cuda::CUDAStream stream = c10::cuda::getCurrentCUDAStream();
  const LossWorkspace workspace = make_loss_workspace(stream, inputs.problem.slots);
  C10_CUDA_CHECK(launch_masked_giou_loss_and_grad(inputs.problem, workspace.sums, workspace.ticket,
                                                  loss.data_ptr(), normalizer.data_ptr<double>(),
                                                  box_slots(grad), stream));
  return {loss, grad};
}

JaggedProblem jagged_problem(const Tensor& pred, const Tensor& targets, const Tensor& offsets) {
  return {box_slots(pred), box_slots(targets), number_slots(offsets),
          pred.size(0),    pred.size(1),       targets.size(0)};
}

std::tuple<Tensor, Tensor> jagged_giou_loss_forward_cuda(const Tensor& pred, const Tensor& targets,
                                                         const Tensor& offsets, double eps) {
  const c10::cuda::CUDAGuard device(pred.device());
  const auto [loss, normalizer] = jagged_giou_loss_forward_outputs(pred, targets, offsets, eps);
  const c10::cuda::CUDAStream stream = c10::cuda::getCurrentCUDAStream();
  const LossWorkspace workspace = make_loss_workspace(stream, std::max(targets.size(0), pred.size(0)));
  C10_CUDA_CHECK(launch_jagged_giou_loss_forward(
      jagged_problem(pred, targets, offsets), eps, loss.scalar_type() == at::kDouble, workspace.sums,
      workspace.ticket, loss.data_ptr(), normalizer.data_ptr<double>(), stream));
  return {loss, normalizer};
}

std::tuple<Tensor, Tensor> jagged_giou_loss_backward_cuda(const Tensor& grad, const Tensor& pred,
                                                          const Tensor& targets, const Tensor& offsets,
                                                          const Tensor& normalizer, double eps,
                                                          std::array<bool, 2> output_mask) {
  const c10::cuda::CUDAGuard device(pred.device());
  const auto [grad_pred, grad_targets] =
      jagged_giou_loss_backward_outputs(grad, pred, targets, offsets, normalizer, eps, output_mask);
  const SlotView pred_out = box_slots(grad_pred), target_out = box_slots(grad_targets);
  C10_CUDA_CHECK(launch_jagged_giou_loss_backward(
      number_slots(grad), jagged_problem(pred, targets, offsets), normalizer.const_data_ptr<double>(), eps,
      math_dtype(pred, targets) == at::kDouble, output_mask[0] ? &pred_out : nullptr,
      output_mask[1] ? &target_out : nullptr, c10::cuda::getCurrentCUDAStream()));
  return {grad_pred, grad_targets};
}

}  // namespace
}  // namespace lensbox

TORCH_LIBRARY_IMPL(lensbox, CUDA, m) {
  m.impl("_masked_giou_loss_forward", lensbox::masked_giou_loss_forward_cuda);
  m.impl("_masked_giou_loss_backward", lensbox::masked_giou_loss_backward_cuda);
  m.impl("masked_giou_loss_and_grad", lensbox::masked_giou_loss_and_grad_cuda);
  m.impl("_jagged_giou_loss_forward", lensbox::jagged_giou_loss_forward_cuda);
  m.impl("_jagged_giou_loss_backward", lensbox::jagged_giou_loss_backward_cuda);
}
