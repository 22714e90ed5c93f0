#include <vector>

#include "box_block.h"
#include "launchers.h"

namespace lensbox {
namespace {

// Read the boxes of one image, each of which is compared with all boxes of the other side.
template <typename T>
void load_image(const SlotView& view, int64_t image, int64_t count, std::vector<BoxBlock<T>>& blocks) {
  blocks.resize((count + kBlock - 1) / kBlock);
  auto block = blocks.begin();
  for_each_block(image * count, (image + 1) * count,
                 [&](const int64_t* slots, int in_block) { load_boxes(view, slots, in_block, *block++); });
}

template <typename T>
void pairwise_giou_kernel(const PairwiseProblem& problem, T eps, const SlotView& out) {
  std::vector<BoxBlock<T>> columns;
  T values[kBlock];
  T* const result = values;
  for (int64_t row = 0; row < problem.batch * problem.rows; ++row) {
    if (row % problem.rows == 0) load_image(problem.boxes2, row / problem.rows, problem.columns, columns);
    const Box<T> a = load_box<T>(problem.boxes1, row);
    auto block = columns.begin();
    for_each_block(row * problem.columns, (row + 1) * problem.columns,
                   [&](const int64_t* out_slots, int count) {
                     with_widest_vectors([=, &b = *block++] {
                       for (int i = 0; i < count; ++i) {
                         result[i] = giou(a, b[i], eps);
                       }
                     });
                     store_numbers(out, out_slots, count, result);
                   });
  }
}

template <typename T>
LENSBOX_HOST_DEVICE Box<T> added(const Box<T>& a, const Box<T>& b) {
  return {a.x1 + b.x1, a.y1 + b.y1, a.x2 + b.x2, a.y2 + b.y2};
}

// Sum grad * d giou / d of over all boxes in `against`. The slot of grad for the next box of `of` is own_step
// later, that for the next box of `against` other_step. Position i of every block adds to sums[i]; then the
// upper half of the sums is added to the lower half until one sum is left. The order is always the same, and
// vector instructions can keep it.
template <typename T>
void gradient_of_side(const SlotView& of, int64_t of_count, const SlotView& against, int64_t against_count,
                      int64_t batch, const SlotView& grad, int64_t own_step, int64_t other_step, T eps,
                      const SlotView& out) {
  std::vector<BoxBlock<T>> others;
  T upstream[kBlock];
  const T* const factors = upstream;
  int64_t grad_slots[kBlock];
  for (int64_t slot = 0; slot < batch * of_count; ++slot) {
    const int64_t image = slot / of_count, own = slot - image * of_count;
    if (own == 0) load_image(against, image, against_count, others);
    const Box<T> a = load_box<T>(of, slot);
    const int64_t first_grad = image * of_count * against_count + own * own_step;
    auto block = others.begin();
    BoxBlock<T> sums{};
    for_each_block(0, against_count, [&](const int64_t* slots, int count) {
      for (int i = 0; i < count; ++i) {
        grad_slots[i] = first_grad + slots[i] * other_step;
      }
      load_numbers(grad, grad_slots, count, upstream);
      with_widest_vectors([=, &b = *block++, &sums] {
        for (int i = 0; i < count; ++i) {
          sums.set(i, added(sums[i], scaled(giou_gradient(a, b[i], eps), factors[i])));
        }
      });
    });
    for (int half = kBlock / 2; half > 0; half /= 2) {
      for (int i = 0; i < half; ++i) {
        sums.set(i, added(sums[i], sums[half + i]));
      }
    }
    store_gradients(out, &slot, 1, sums);
  }
}

template <typename T>
void pairwise_giou_backward_kernel(const SlotView& grad, const PairwiseProblem& problem, T eps,
                                   const SlotView& grad1, const SlotView& grad2) {
  const int64_t rows = problem.rows, columns = problem.columns;
  if (grad1.exists()) {
    gradient_of_side(problem.boxes1, rows, problem.boxes2, columns, problem.batch, grad, columns, 1, eps,
                     grad1);
  }
  if (grad2.exists()) {
    gradient_of_side(problem.boxes2, columns, problem.boxes1, rows, problem.batch, grad, 1, columns, eps,
                     grad2);
  }
}

}  // namespace

void lensbox_cpu_pairwise_giou(const PairwiseProblem& problem, double eps, bool in_double,
                               const SlotView& out) {
  with_math(in_double,
            [&](auto math) { pairwise_giou_kernel(problem, static_cast<decltype(math)>(eps), out); });
}

void lensbox_cpu_pairwise_giou_backward(const SlotView& grad, const PairwiseProblem& problem, double eps,
                                        bool in_double, const SlotView& grad1, const SlotView& grad2) {
  with_math(in_double, [&](auto math) {
    pairwise_giou_backward_kernel(grad, problem, static_cast<decltype(math)>(eps), grad1, grad2);
  });
}

}  // namespace lensbox
