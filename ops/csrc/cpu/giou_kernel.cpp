#include "box_pairs.h"
#include "launchers.h"

namespace lensbox {
namespace {

template <typename T>
void giou_kernel(const SlotView& boxes1, const SlotView& boxes2, T eps, int64_t slots, const SlotView& out) {
  BoxBlock<T> a, b;
  T result[kBlock];
  for_each_block(0, slots, [&](const int64_t* block, int count) {
    Pairs{boxes1, boxes2, block, block, count}.load(a, b);
    giou_of_blocks(a, b, eps, count, result);
    store_numbers(out, block, count, result);
  });
}

template <typename T>
void giou_backward_kernel(const SlotView& grad, const SlotView& boxes1, const SlotView& boxes2, T eps,
                          int64_t slots, const SlotView& grad1, const SlotView& grad2) {
  T upstream[kBlock];
  for_each_block(0, slots, [&](const int64_t* block, int count) {
    load_numbers(grad, block, count, upstream);
    write_gradients(Pairs{boxes1, boxes2, block, block, count}, upstream, eps, grad1, grad2);
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
