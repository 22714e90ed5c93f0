#include <algorithm>

#include "launchers.h"
#include "loss_pairs.h"

namespace lensbox {
namespace {

int64_t offset(const JaggedProblem& problem, int64_t i) {
  int64_t value;
  load_numbers(problem.offsets, &i, 1, &value);
  return value;
}

// Call body(pairs) for blocks of the pairs of all images, in order.
template <typename Body>
void for_each_pair_block(const JaggedProblem& problem, const Body& body) {
  int64_t pred_slots[kBlock], target_slots[kBlock];
  int count = 0;
  for (int64_t image = 0; image < problem.images; ++image) {
    const int64_t first = offset(problem, image), targets = offset(problem, image + 1) - first;
    for (int64_t i = 0; i < targets; ++i) {
      pred_slots[count] = image * problem.slots + i;
      target_slots[count] = first + i;
      if (++count < kBlock) continue;
      body(Pairs{problem.pred, problem.targets, pred_slots, target_slots, count});
      count = 0;
    }
  }
  if (count > 0) body(Pairs{problem.pred, problem.targets, pred_slots, target_slots, count});
}

template <typename T>
Sums sum_losses(const JaggedProblem& problem) {
  T ones[kBlock];
  std::fill_n(ones, kBlock, T(1));
  Sums sums;
  for_each_pair_block(
      problem, [&](const Pairs& pairs) { add_losses(pairs, ones, static_cast<T>(problem.eps), sums); });
  return sums;
}

// d loss / d box = -1 / D  d giou / d box, with D the number of pairs, at least 1; slots without a target get
// 0.
template <typename T>
void backward(const JaggedProblem& problem, const SlotView& grad, double divisor, const SlotView& grad_pred,
              const SlotView& grad_targets) {
  T factors[kBlock];
  std::fill_n(factors, kBlock, -LossScale<T>(load_scalar<T>(grad), divisor).of(T(1)));
  for_each_pair_block(problem, [&](const Pairs& pairs) {
    write_gradients(pairs, factors, static_cast<T>(problem.eps), grad_pred, grad_targets);
  });
  for (int64_t image = 0; grad_pred.exists() && image < problem.images; ++image) {
    const int64_t filled = offset(problem, image + 1) - offset(problem, image);
    zero_boxes(grad_pred, image * problem.slots + filled, problem.slots - filled);
  }
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
  const Sums sums = (problem.in_double ? sum_losses<double> : sum_losses<float>)(problem);
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
