#include <algorithm>

#include "box_pairs.h"
#include "launchers.h"

namespace lensbox {
namespace {

int64_t offset(const JaggedProblem& problem, int64_t i) {
  int64_t value;
  load_numbers(problem.offsets, &i, 1, &value);
  return value;
}

// The images of a part: as many as have about kPartSlots slots.
struct ImageRange {
  int64_t begin, end;

  static int64_t size(const JaggedProblem& problem) {
    return std::max<int64_t>(1, kPartSlots / std::max<int64_t>(problem.slots, 1));
  }
  static int64_t parts_of(const JaggedProblem& problem) {
    return (problem.images + size(problem) - 1) / size(problem);
  }
  ImageRange(const JaggedProblem& problem, int64_t part)
      : begin(part * size(problem)), end(std::min(begin + size(problem), problem.images)) {}
};

// Return the walk of the pairs of a part, in order, for sum_losses() and write_loss_gradients().
template <typename T>
auto walk_of(const JaggedProblem& problem) {
  return [&problem](int64_t part, const auto& body) {
    const ImageRange range(problem, part);
    T ones[kBlock];
    std::fill_n(ones, kBlock, T(1));
    int64_t pred_slots[kBlock], target_slots[kBlock];
    int count = 0;
    for (int64_t image = range.begin; image < range.end; ++image) {
      const int64_t first = offset(problem, image), targets = offset(problem, image + 1) - first;
      for (int64_t i = 0; i < targets; ++i) {
        pred_slots[count] = image * problem.slots + i;
        target_slots[count] = first + i;
        if (++count < kBlock) continue;
        body(Pairs{problem.pred, problem.targets, pred_slots, target_slots, count}, ones);
        count = 0;
      }
    }
    if (count > 0) body(Pairs{problem.pred, problem.targets, pred_slots, target_slots, count}, ones);
  };
}

// Slots without a target get 0.
template <typename T>
void backward(const JaggedProblem& problem, const SlotView& grad, double divisor, const SlotView& grad_pred,
              const SlotView& grad_targets) {
  const LossScale<T> scale(load_scalar<T>(grad), divisor);
  parallel_for(ImageRange::parts_of(problem), [&](int64_t part) {
    write_loss_gradients(part, walk_of<T>(problem), scale, static_cast<T>(problem.eps), grad_pred,
                         grad_targets);
    const ImageRange range(problem, part);
    for (int64_t image = range.begin; grad_pred.exists() && image < range.end; ++image) {
      const int64_t filled = offset(problem, image + 1) - offset(problem, image);
      zero_boxes(grad_pred, image * problem.slots + filled, problem.slots - filled);
    }
  });
}

}  // namespace

int64_t lensbox_cpu_first_invalid_segment(const JaggedProblem& problem) {
  if (problem.images == 0) return problem.target_count == 0 && offset(problem, 0) == 0 ? -1 : 0;
  for (int64_t image = 0; image < problem.images; ++image) {
    if (!is_valid_segment(image, offset(problem, image), offset(problem, image + 1), problem.images,
                          problem.slots, problem.target_count)) {
      return image;
    }
  }
  return -1;
}

void lensbox_cpu_jagged_giou_loss_forward(const JaggedProblem& problem, void* loss, double* normalizer) {
  const int64_t parts = ImageRange::parts_of(problem);
  const Sums sums = problem.in_double
                        ? sum_losses(parts, walk_of<double>(problem), problem.eps)
                        : sum_losses(parts, walk_of<float>(problem), static_cast<float>(problem.eps));
  store_loss(loss, normalizer, problem.in_double, sums.loss,
             std::max(1.0, static_cast<double>(problem.target_count)));
}

void lensbox_cpu_jagged_giou_loss_backward(const JaggedProblem& problem, const SlotView& grad,
                                           const double* normalizer, const SlotView& grad_pred,
                                           const SlotView& grad_targets) {
  (problem.in_double ? backward<double> : backward<float>)(problem, grad, *normalizer, grad_pred,
                                                           grad_targets);
}

}  // namespace lensbox
