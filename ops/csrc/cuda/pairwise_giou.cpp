#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/library.h>

#include <array>

#include "../checks.h"
#include "../outputs.h"
#include "../slots.h"
#include "pairwise_giou_kernel.h"

namespace lensbox {
namespace {

Tensor pairwise_giou_cuda(const Tensor& boxes1, const Tensor& boxes2, double eps) {
  const c10::cuda::CUDAGuard device(boxes1.device());
  const Tensor out = pairwise_giou_outputs(boxes1, boxes2, eps);
  C10_CUDA_CHECK(launch_pairwise_giou(pairwise_problem(boxes1, boxes2), eps,
                                      math_dtype(boxes1, boxes2) == at::kDouble, number_slots(out),
                                      c10::cuda::getCurrentCUDAStream()));
  return out;
}

std::tuple<Tensor, Tensor> pairwise_giou_backward_cuda(const Tensor& grad, const Tensor& boxes1,
                                                       const Tensor& boxes2, double eps,
                                                       std::array<bool, 2> output_mask) {
  const c10::cuda::CUDAGuard device(boxes1.device());
  const auto [grad1, grad2] = pairwise_giou_backward_outputs(grad, boxes1, boxes2, eps, output_mask);
  const SlotView out1 = output_mask[0] ? box_slots(grad1) : SlotView{};
  const SlotView out2 = output_mask[1] ? box_slots(grad2) : SlotView{};
  C10_CUDA_CHECK(launch_pairwise_giou_backward(
      number_slots(grad), pairwise_problem(boxes1, boxes2), eps, math_dtype(boxes1, boxes2) == at::kDouble,
      output_mask[0] ? &out1 : nullptr, output_mask[1] ? &out2 : nullptr, c10::cuda::getCurrentCUDAStream()));
  return {grad1, grad2};
}

}  // namespace
}  // namespace lensbox

TORCH_LIBRARY_IMPL(lensbox, CUDA, m) {
  m.impl("pairwise_giou", lensbox::pairwise_giou_cuda);
  m.impl("_pairwise_giou_backward", lensbox::pairwise_giou_backward_cuda);
}
