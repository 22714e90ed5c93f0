#include <vector>

#include "box_block.h"
#include "launchers.h"

namespace lensbox {
namespace {

// The boxes of one image in blocks. Each block is read once and compared with all boxes of the other side.
template <typename T>
class ImageBoxes {
 public:
  ImageBoxes(const SlotView& view, int64_t count)
      : view_(view), count_(count), blocks_((count + kBlock - 1) / kBlock) {}

  // Return the blocks of an image, valid until the next call for another image.
  const std::vector<BoxBlock<T>>& of_image(int64_t image) {
    if (image != loaded_) {
      size_t block = 0;
      for_each_block(image * count_, (image + 1) * count_, [&](const int64_t* slots, int count) {
        load_boxes(view_, slots, count, blocks_[block++]);
      });
      loaded_ = image;
    }
    return blocks_;
  }

 private:
  const SlotView& view_;
  int64_t count_;
  std::vector<BoxBlock<T>> blocks_;
  int64_t loaded_ = -1;
};

template <typename T>
void pairwise_giou_kernel(const PairwiseProblem& problem, T eps, const SlotView& out) {
  ImageBoxes<T> columns(problem.boxes2, problem.columns);
  T values[kBlock];
  T* const result = values;
  for (int64_t row = 0; row < problem.batch * problem.rows; ++row) {
    const Box<T> a = load_box<T>(problem.boxes1, row);
    const auto& blocks = columns.of_image(row / problem.rows);
    size_t block = 0;
    for_each_block(row * problem.columns, (row + 1) * problem.columns,
                   [&](const int64_t* out_slots, int count) {
                     with_widest_vectors([=, &b = blocks[block++]] {
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
  ImageBoxes<T> others(against, against_count);
  T upstream[kBlock];
  const T* const factors = upstream;
  int64_t grad_slots[kBlock];
  for (int64_t slot = 0; slot < batch * of_count; ++slot) {
    const Box<T> a = load_box<T>(of, slot);
    const int64_t image = slot / of_count;
    const int64_t own = slot - image * of_count;
    const int64_t first = image * against_count;
    const auto& blocks = others.of_image(image);
    size_t block = 0;
    BoxBlock<T> sums{};
    for_each_block(first, first + against_count, [&](const int64_t* slots, int count) {
      for (int i = 0; i < count; ++i) {
        grad_slots[i] = first * of_count + own * own_step + (slots[i] - first) * other_step;
      }
      load_numbers(grad, grad_slots, count, upstream);
      with_widest_vectors([=, &b = blocks[block++], &sums] {
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
