#include <ATen/Parallel.h>
#include <torch/library.h>

#include <algorithm>

#include "../checks.h"
#include "../outputs.h"
#include "../slots.h"
#include "box_block.h"

namespace lensbox {
namespace {

constexpr int64_t kGrainPairs = 4096;  // pairs a thread takes at least

template <typename T>
Box<T> load_box(const SlotView& view, int64_t slot) {
  BoxBlock<T> block;
  load_boxes(view, &slot, 1, block);
  return block[0];
}

template <typename T>
void pairwise_giou_kernel(const PairwiseProblem& problem, T eps, const SlotView& out) {
  const int64_t grain = kGrainPairs / std::max<int64_t>(problem.columns, 1) + 1;
  at::parallel_for(0, problem.batch * problem.rows, grain, [&](int64_t begin, int64_t end) {
    BoxBlock<T> b;
    T result[kBlock];
    int64_t out_slots[kBlock];
    for (int64_t row = begin; row < end; ++row) {
      const Box<T> a = load_box<T>(problem.boxes1, row);
      const int64_t first = row / problem.rows * problem.columns;
      for_each_block(first, first + problem.columns, [&](const int64_t* slots, int count) {
        load_boxes(problem.boxes2, slots, count, b);
        for (int i = 0; i < count; ++i) {
          result[i] = giou(a, b[i], eps);
          out_slots[i] = row * problem.columns + slots[i] - first;
        }
        store_numbers(out, out_slots, count, result);
      });
    }
  });
}

// Sums grad * d giou / d of over everything in `against`: one thread owns one box of `of`, so sums are
// repeatable. grad_stride and grad_step walk the [rows, columns] gradient along a row or down a column.
template <typename T>
void gradient_of_side(const SlotView& of, int64_t of_count, const SlotView& against, int64_t against_count,
                      int64_t batch, const SlotView& grad, bool of_is_row, T eps, const SlotView& out) {
  const int64_t grain = kGrainPairs / std::max<int64_t>(against_count, 1) + 1;
  at::parallel_for(0, batch * of_count, grain, [&](int64_t begin, int64_t end) {
    BoxBlock<T> b, total;
    T upstream[kBlock];
    int64_t grad_slots[kBlock];
    for (int64_t slot = begin; slot < end; ++slot) {
      const Box<T> a = load_box<T>(of, slot);
      const int64_t image = slot / of_count;
      const int64_t own = slot - image * of_count;
      const int64_t first = image * against_count;
      Box<T> sum{};
      for_each_block(first, first + against_count, [&](const int64_t* slots, int count) {
        load_boxes(against, slots, count, b);
        for (int i = 0; i < count; ++i) {
          const int64_t other = slots[i] - first;
          const int64_t row = of_is_row ? own : other;
          const int64_t column = of_is_row ? other : own;
          grad_slots[i] = (image * (of_is_row ? of_count : against_count) + row) *
                              (of_is_row ? against_count : of_count) +
                          column;
        }
        load_numbers(grad, grad_slots, count, upstream);
        for (int i = 0; i < count; ++i) {
          const Box<T> gradient = scaled(giou_gradient(a, b[i], eps), upstream[i]);
          sum = {sum.x1 + gradient.x1, sum.y1 + gradient.y1, sum.x2 + gradient.x2, sum.y2 + gradient.y2};
        }
      });
      total.set(0, sum);
      store_gradients(out, &slot, 1, total);
    }
  });
}

Tensor pairwise_giou_cpu(const Tensor& boxes1, const Tensor& boxes2, double eps) {
  const Tensor out = pairwise_giou_outputs(boxes1, boxes2, eps);
  const PairwiseProblem problem = pairwise_problem(boxes1, boxes2);
  if (math_dtype(boxes1, boxes2) == at::kDouble) {
    pairwise_giou_kernel<double>(problem, eps, number_slots(out));
  } else {
    pairwise_giou_kernel<float>(problem, static_cast<float>(eps), number_slots(out));
  }
  return out;
}

std::tuple<Tensor, Tensor> pairwise_giou_backward_cpu(const Tensor& grad, const Tensor& boxes1,
                                                      const Tensor& boxes2, double eps) {
  const auto [grad1, grad2] = pairwise_giou_backward_outputs(grad, boxes1, boxes2, eps);
  const PairwiseProblem problem = pairwise_problem(boxes1, boxes2);
  const SlotView upstream = number_slots(grad);
  const SlotView out1 = box_slots(grad1), out2 = box_slots(grad2);
  const auto run = [&](auto math) {
    using T = decltype(math);
    const T clamp = static_cast<T>(eps);
    gradient_of_side<T>(problem.boxes1, problem.rows, problem.boxes2, problem.columns, problem.batch,
                        upstream, true, clamp, out1);
    gradient_of_side<T>(problem.boxes2, problem.columns, problem.boxes1, problem.rows, problem.batch,
                        upstream, false, clamp, out2);
  };
  math_dtype(boxes1, boxes2) == at::kDouble ? run(double{}) : run(float{});
  return {grad1, grad2};
}

}  // namespace
}  // namespace lensbox

TORCH_LIBRARY_IMPL(lensbox, CPU, m) {
  m.impl("pairwise_giou", lensbox::pairwise_giou_cpu);
  m.impl("_pairwise_giou_backward", lensbox::pairwise_giou_backward_cpu);
}
