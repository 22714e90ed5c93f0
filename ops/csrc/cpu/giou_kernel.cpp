#include <ATen/Parallel.h>
#include <torch/library.h>

#include <array>

#include "../checks.h"
#include "../outputs.h"
#include "../slots.h"
#include "box_block.h"

namespace lensbox {
namespace {

constexpr int64_t kGrainSlots = 2048;  // slots a thread takes at least

template <typename T>
void giou_kernel(const SlotView& boxes1, const SlotView& boxes2, T eps, int64_t slots, const SlotView& out) {
  at::parallel_for(0, slots, kGrainSlots, [&](int64_t begin, int64_t end) {
    BoxBlock<T> a, b;
    T result[kBlock];
    for_each_block(begin, end, [&](const int64_t* block, int count) {
      load_boxes(boxes1, block, count, a);
      load_boxes(boxes2, block, count, b);
      giou_of_blocks(a, b, eps, count, result);
      store_numbers(out, block, count, result);
    });
  });
}

// A gradient that is nullptr is one that nobody asked for.
template <typename T>
void giou_backward_kernel(const SlotView& grad, const SlotView& boxes1, const SlotView& boxes2, T eps,
                          int64_t slots, const SlotView* grad1, const SlotView* grad2) {
  at::parallel_for(0, slots, kGrainSlots, [&](int64_t begin, int64_t end) {
    BoxBlock<T> a, b, result;
    T upstream[kBlock];
    for_each_block(begin, end, [&](const int64_t* block, int count) {
      load_boxes(boxes1, block, count, a);
      load_boxes(boxes2, block, count, b);
      load_numbers(grad, block, count, upstream);
      if (grad1 != nullptr) {
        gradients_of_blocks(a, b, eps, upstream, count, result);
        store_gradients(*grad1, block, count, result);
      }
      if (grad2 != nullptr) {
        gradients_of_blocks(b, a, eps, upstream, count, result);
        store_gradients(*grad2, block, count, result);
      }
    });
  });
}

Tensor giou_cpu(const Tensor& boxes1, const Tensor& boxes2, double eps) {
  const Tensor out = giou_outputs(boxes1, boxes2, eps);
  const Tensor a = expand_leading(boxes1, out.sym_sizes(), 1), b = expand_leading(boxes2, out.sym_sizes(), 1);
  if (math_dtype(a, b) == at::kDouble) {
    giou_kernel<double>(box_slots(a), box_slots(b), eps, out.numel(), number_slots(out));
  } else {
    giou_kernel<float>(box_slots(a), box_slots(b), static_cast<float>(eps), out.numel(), number_slots(out));
  }
  return out;
}

std::tuple<Tensor, Tensor> giou_backward_cpu(const Tensor& grad, const Tensor& boxes1, const Tensor& boxes2,
                                             double eps, std::array<bool, 2> output_mask) {
  const auto [grad1, grad2] = giou_backward_outputs(grad, boxes1, boxes2, eps, output_mask);
  const Tensor a = expand_leading(boxes1, grad.sym_sizes(), 1),
               b = expand_leading(boxes2, grad.sym_sizes(), 1);
  const Tensor upstream = viewable(grad, 0);
  const SlotView out1 = box_slots(grad1), out2 = box_slots(grad2);
  const auto run = [&](auto math) {
    using T = decltype(math);
    giou_backward_kernel<T>(number_slots(upstream), box_slots(a), box_slots(b), static_cast<T>(eps),
                            grad.numel(), output_mask[0] ? &out1 : nullptr, output_mask[1] ? &out2 : nullptr);
  };
  math_dtype(boxes1, boxes2) == at::kDouble ? run(double{}) : run(float{});
  return {grad1, grad2};
}

}  // namespace
}  // namespace lensbox

TORCH_LIBRARY_IMPL(lensbox, CPU, m) {
  m.impl("giou", lensbox::giou_cpu);
  m.impl("_giou_backward", lensbox::giou_backward_cpu);
}
