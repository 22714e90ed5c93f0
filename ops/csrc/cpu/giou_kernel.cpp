#include "box_block.h"
#include "launchers.h"

namespace lensbox {
namespace {

template <typename T>
void giou_kernel(const SlotView& boxes1, const SlotView& boxes2, T eps, int64_t slots, const SlotView& out) {
  BoxBlock<T> a, b;
  T result[kBlock];
  for_each_block(0, slots, [&](const int64_t* block, int count) {
    load_boxes(boxes1, block, count, a);
    load_boxes(boxes2, block, count, b);
    giou_of_blocks(a, b, eps, count, result);
    store_numbers(out, block, count, result);
  });
}

template <typename T>
void giou_backward_kernel(const SlotView& grad, const SlotView& boxes1, const SlotView& boxes2, T eps,
                          int64_t slots, const SlotView& grad1, const SlotView& grad2) {
  BoxBlock<T> a, b, result;
  T upstream[kBlock];
  for_each_block(0, slots, [&](const int64_t* block, int count) {
    load_boxes(boxes1, block, count, a);
    load_boxes(boxes2, block, count, b);
    load_numbers(grad, block, count, upstream);
    if (grad1.exists()) {
      gradients_of_blocks(a, b, eps, upstream, count, result);
      store_gradients(grad1, block, count, result);
    }
    if (grad2.exists()) {
      gradients_of_blocks(b, a, eps, upstream, count, result);
      store_gradients(grad2, block, count, result);
    }
  });
}

}  // namespace

void lensbox_cpu_giou(const SlotView& boxes1, const SlotView& boxes2, double eps, bool in_double,
                      int64_t slots, const SlotView& out) {
  with_math(in_double,
            [&](auto math) { giou_kernel(boxes1, boxes2, static_cast<decltype(math)>(eps), slots, out); });
}

void lensbox_cpu_giou_backward(const SlotView& grad, const SlotView& boxes1, const SlotView& boxes2,
                               double eps, bool in_double, int64_t slots, const SlotView& grad1,
                               const SlotView& grad2) {
  with_math(in_double, [&](auto math) {
    giou_backward_kernel(grad, boxes1, boxes2, static_cast<decltype(math)>(eps), slots, grad1, grad2);
  });
}

}  // namespace lensbox
