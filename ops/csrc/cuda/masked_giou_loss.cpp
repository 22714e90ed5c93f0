#include <ATen/ops/empty_like.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/library.h>

#include <array>

#include "../checks.h"
#include "../outputs.h"
#include "../slots.h"
#include "loss_workspace.h"
#include "masked_giou_loss_kernel.h"

namespace lensbox {
namespace {

MaskedProblem masked_problem(const Tensor& pred, const Tensor& target, const std::optional<Tensor>& weight,
                             double eps) {
  return {box_slots(pred),
          box_slots(target),
          weight.has_value() ? number_slots(*weight) : SlotView{},
          weight.has_value(),
          pred.numel() / 4,
          eps,
          math_dtype(pred, target) == at::kDouble};
}

std::tuple<Tensor, Tensor> masked_giou_loss_forward_cuda(const Tensor& pred, const Tensor& target,
                                                         const std::optional<Tensor>& weight, double eps) {
  const c10::cuda::CUDAGuard device(pred.device());
  const auto [loss, normalizer] = masked_giou_loss_forward_outputs(pred, target, weight, eps);
  const c10::cuda::CUDAStream stream = c10::cuda::getCurrentCUDAStream();
  const LossWorkspace workspace = make_loss_workspace(stream, pred.numel() / 4);
  C10_CUDA_CHECK(launch_masked_giou_loss_forward(masked_problem(pred, target, weight, eps), workspace.sums(),
                                                 workspace.ticket.counters, loss.data_ptr(),
                                                 normalizer.data_ptr(), stream));
  return {loss, normalizer};
}

std::tuple<Tensor, Tensor, Tensor> masked_giou_loss_backward_cuda(
    const Tensor& grad, const Tensor& pred, const Tensor& target, const std::optional<Tensor>& weight,
    const Tensor& loss, const Tensor& normalizer, double eps, std::array<bool, 3> output_mask) {
  const c10::cuda::CUDAGuard device(pred.device());
  const auto [grad_pred, grad_target, grad_weight] =
      masked_giou_loss_backward_outputs(grad, pred, target, weight, loss, normalizer, eps, output_mask);
  const SlotView pred_out = output_mask[0] ? box_slots(grad_pred) : SlotView{};
  const SlotView target_out = output_mask[1] ? box_slots(grad_target) : SlotView{};
  const SlotView weight_out = output_mask[2] ? number_slots(grad_weight) : SlotView{};
  const MaskedGradients out = {output_mask[0] ? &pred_out : nullptr, output_mask[1] ? &target_out : nullptr,
                               output_mask[2] ? &weight_out : nullptr};
  C10_CUDA_CHECK(launch_masked_giou_loss_backward(masked_problem(pred, target, weight, eps),
                                                  number_slots(grad), loss.data_ptr(), normalizer.data_ptr(),
                                                  out, c10::cuda::getCurrentCUDAStream()));
  return {grad_pred, grad_target, grad_weight};
}

std::tuple<Tensor, Tensor> masked_giou_loss_and_grad_cuda(const Tensor& pred, const Tensor& target,
                                                          const std::optional<Tensor>& weight, double eps) {
  const c10::cuda::CUDAGuard device(pred.device());
  const auto [loss, grad] = masked_giou_loss_and_grad_outputs(pred, target, weight, eps);
  const Tensor normalizer = at::empty_like(loss);
  const c10::cuda::CUDAStream stream = c10::cuda::getCurrentCUDAStream();
  const LossWorkspace workspace = make_loss_workspace(stream, pred.numel() / 4);
  C10_CUDA_CHECK(launch_masked_giou_loss_and_grad(masked_problem(pred, target, weight, eps), workspace.sums(),
                                                  workspace.ticket.counters, loss.data_ptr(),
                                                  normalizer.data_ptr(), box_slots(grad), stream));
  return {loss, grad};
}

}  // namespace
}  // namespace lensbox

TORCH_LIBRARY_IMPL(lensbox, CUDA, m) {
  m.impl("_masked_giou_loss_forward", lensbox::masked_giou_loss_forward_cuda);
  m.impl("_masked_giou_loss_backward", lensbox::masked_giou_loss_backward_cuda);
  m.impl("masked_giou_loss_and_grad", lensbox::masked_giou_loss_and_grad_cuda);
}
