#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/library.h>

#include <algorithm>
#include <array>

#include "../checks.h"
#include "../outputs.h"
#include "../slots.h"
#include "jagged_giou_loss_kernel.h"
#include "loss_workspace.h"

namespace lensbox {
namespace {

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
      jagged_problem(pred, targets, offsets), eps, loss.scalar_type() == at::kDouble, workspace.sums(),
      workspace.ticket.counters, loss.data_ptr(), normalizer.data_ptr(), stream));
  return {loss, normalizer};
}

std::tuple<Tensor, Tensor> jagged_giou_loss_backward_cuda(const Tensor& grad, const Tensor& pred,
                                                          const Tensor& targets, const Tensor& offsets,
                                                          const Tensor& normalizer, double eps,
                                                          std::array<bool, 2> output_mask) {
  const c10::cuda::CUDAGuard device(pred.device());
  const auto [grad_pred, grad_targets] =
      jagged_giou_loss_backward_outputs(grad, pred, targets, offsets, normalizer, eps, output_mask);
  const SlotView pred_out = output_mask[0] ? box_slots(grad_pred) : SlotView{};
  const SlotView target_out = output_mask[1] ? box_slots(grad_targets) : SlotView{};
  C10_CUDA_CHECK(launch_jagged_giou_loss_backward(
      number_slots(grad), jagged_problem(pred, targets, offsets), number_slots(normalizer), eps,
      math_dtype(pred, targets) == at::kDouble, output_mask[0] ? &pred_out : nullptr,
      output_mask[1] ? &target_out : nullptr, c10::cuda::getCurrentCUDAStream()));
  return {grad_pred, grad_targets};
}

}  // namespace
}  // namespace lensbox

TORCH_LIBRARY_IMPL(lensbox, CUDA, m) {
  m.impl("_jagged_giou_loss_forward", lensbox::jagged_giou_loss_forward_cuda);
  m.impl("_jagged_giou_loss_backward", lensbox::jagged_giou_loss_backward_cuda);
}
