// The bindings of `giou` and `pairwise_giou`.

#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/library.h>

#include <array>

#include "../checks.h"
#include "../outputs.h"
#include "../slots.h"
#include "launchers.h"

namespace lensbox {
namespace {

Tensor giou_cuda(const Tensor& boxes1, const Tensor& boxes2, double eps) {
  const c10::cuda::CUDAGuard device(boxes1.device());
  const Tensor out = giou_outputs(boxes1, boxes2, eps);
  const Tensor a = expand_leading(boxes1, out.sym_sizes(), 1), b = expand_leading(boxes2, out.sym_sizes(), 1);
  C10_CUDA_CHECK(launch_giou(box_slots(a), box_slots(b), eps, math_dtype(a, b) == at::kDouble, out.numel(),
                             number_slots(out), c10::cuda::getCurrentCUDAStream()));
  return out;
}

std::tuple<Tensor, Tensor> giou_backward_cuda(const Tensor& grad, const Tensor& boxes1, const Tensor& boxes2,
                                              double eps, std::array<bool, 2> output_mask) {
  const c10::cuda::CUDAGuard device(boxes1.device());
  const auto [grad1, grad2] = giou_backward_outputs(grad, boxes1, boxes2, eps, output_mask);
  const Tensor a = expand_leading(boxes1, grad.sym_sizes(), 1),
               b = expand_leading(boxes2, grad.sym_sizes(), 1);
  const Tensor upstream = viewable(grad, 0);
  const SlotView out1 = box_slots(grad1), out2 = box_slots(grad2);
  C10_CUDA_CHECK(launch_giou_backward(
      number_slots(upstream), box_slots(a), box_slots(b), eps, math_dtype(a, b) == at::kDouble, grad.numel(),
      output_mask[0] ? &out1 : nullptr, output_mask[1] ? &out2 : nullptr, c10::cuda::getCurrentCUDAStream()));
  return {grad1, grad2};
}

Tensor pairwise_giou_cuda(const Tensor& boxes1, const Tensor& boxes2, double eps) {
  const c10::cuda::CUDAGuard device(boxes1.device());
  const Tensor out = pairwise_giou_outputs(boxes1, boxes2, eps);
  const auto batch = broadcast_leading(boxes1, boxes2, 2);
  const Tensor a = expand_leading(boxes1, batch, 2), b = expand_leading(boxes2, batch, 2);
  C10_CUDA_CHECK(launch_pairwise_giou(pairwise_problem(a, b), eps, math_dtype(a, b) == at::kDouble,
                                      number_slots(out), c10::cuda::getCurrentCUDAStream()));
  return out;
}

std::tuple<Tensor, Tensor> pairwise_giou_backward_cuda(const Tensor& grad, const Tensor& boxes1,
                                                       const Tensor& boxes2, double eps,
                                                       std::array<bool, 2> output_mask) {
  const c10::cuda::CUDAGuard device(boxes1.device());
  const auto [grad1, grad2] = pairwise_giou_backward_outputs(grad, boxes1, boxes2, eps, output_mask);
  const auto batch = broadcast_leading(boxes1, boxes2, 2);
  const Tensor a = expand_leading(boxes1, batch, 2), b = expand_leading(boxes2, batch, 2);
  const Tensor upstream = viewable(grad, 0);
  const SlotView out1 = box_slots(grad1), out2 = box_slots(grad2);
  C10_CUDA_CHECK(launch_pairwise_giou_backward(
      number_slots(upstream), pairwise_problem(a, b), eps, math_dtype(a, b) == at::kDouble,
      output_mask[0] ? &out1 : nullptr, output_mask[1] ? &out2 : nullptr, c10::cuda::getCurrentCUDAStream()));
  return {grad1, grad2};
}

}  // namespace
}  // namespace lensbox

TORCH_LIBRARY_IMPL(lensbox, CUDA, m) {
  m.impl("giou", lensbox::giou_cuda);
  m.impl("_giou_backward", lensbox::giou_backward_cuda);
  m.impl("pairwise_giou", lensbox::pairwise_giou_cuda);
  m.impl("_pairwise_giou_backward", lensbox::pairwise_giou_backward_cuda);
}
