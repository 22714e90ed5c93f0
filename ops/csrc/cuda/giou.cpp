#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/library.h>

#include <array>

#include "../checks.h"
#include "../outputs.h"
#include "../shapes.h"
#include "../slots.h"
#include "giou_kernel.h"

namespace lensbox {
namespace {

Tensor giou_cuda(const Tensor& boxes1, const Tensor& boxes2, double eps) {
  const c10::cuda::CUDAGuard device(boxes1.device());
  const Tensor out = giou_outputs(boxes1, boxes2, eps);
  const Tensor a = expand_leading(boxes1, out.sym_sizes(), 1);
  const Tensor b = expand_leading(boxes2, out.sym_sizes(), 1);
  C10_CUDA_CHECK(launch_giou(box_slots(a), box_slots(b), eps, math_dtype(a, b) == at::kDouble, out.numel(),
                             number_slots(out), c10::cuda::getCurrentCUDAStream()));
  return out;
}

std::tuple<Tensor, Tensor> giou_backward_cuda(const Tensor& grad, const Tensor& boxes1, const Tensor& boxes2,
                                              double eps, std::array<bool, 2> output_mask) {
  const c10::cuda::CUDAGuard device(boxes1.device());
  const auto [grad1, grad2] = giou_backward_outputs(grad, boxes1, boxes2, eps, output_mask);
  const Tensor a = expand_leading(boxes1, grad.sym_sizes(), 1);
  const Tensor b = expand_leading(boxes2, grad.sym_sizes(), 1);
  const SlotView out1 = output_mask[0] ? box_slots(grad1) : SlotView{};
  const SlotView out2 = output_mask[1] ? box_slots(grad2) : SlotView{};
  C10_CUDA_CHECK(launch_giou_backward(
      number_slots(grad), box_slots(a), box_slots(b), eps, math_dtype(a, b) == at::kDouble, grad.numel(),
      output_mask[0] ? &out1 : nullptr, output_mask[1] ? &out2 : nullptr, c10::cuda::getCurrentCUDAStream()));
  return {grad1, grad2};
}

}  // namespace
}  // namespace lensbox

TORCH_LIBRARY_IMPL(lensbox, CUDA, m) {
  m.impl("giou", lensbox::giou_cuda);
  m.impl("_giou_backward", lensbox::giou_backward_cuda);
}
