#include <algorithm>
#include <cstring>

#include "launchers.h"
#include "loss_pairs.h"

namespace lensbox {
namespace {

constexpr int kGroup = sizeof(uint64_t);  // slots skipped at once if all are padding; one byte per slot

// Find the valid slots among the consecutive slots[0..count): weight not 0 or, without weights, y2 of the
// target not 0. Write these slots and their weights to the front of `valid` and `weights`.
template <typename T>
int find_valid(const MaskedProblem& problem, const int64_t* slots, int count, int64_t* valid, T* weights) {
  T numbers[kBlock];
  if (problem.is_weighted) {
    load_numbers(problem.weight, slots, count, numbers);
  } else {
    load_one<4>(problem.target, 3, slots, count, numbers);
  }
  uint8_t is_valid[kBlock] = {};
  for (int i = 0; i < count; ++i) {
    is_valid[i] = numbers[i] != T(0);
  }
  int found = 0;
  for (int start = 0; start < count; start += kGroup) {
    uint64_t any;
    std::memcpy(&any, is_valid + start, kGroup);
    if (any == 0) continue;  // most slots of a padded batch are padding
    for (int i = start; i < std::min(start + kGroup, count); ++i) {
      valid[found] = slots[i];
      weights[found] = problem.is_weighted ? numbers[i] : T(1);
      found += is_valid[i];
    }
  }
  return found;
}

template <typename T>
Sums sum_losses(const MaskedProblem& problem) {
  Sums sums;
  int64_t valid[kBlock];
  T weights[kBlock];
  for_each_block(0, problem.slots, [&](const int64_t* slots, int count) {
    const int found = find_valid(problem, slots, count, valid, weights);
    add_losses(Pairs{problem.pred, problem.target, valid, valid, found}, weights, static_cast<T>(problem.eps),
               sums);
  });
  return sums;
}

// loss = sum(w_i (1 - giou_i)) / D with D = max(sum(w), 1), so
//   d loss / d box_i = -w_i / D  d giou_i / d box_i
//   d loss / d w_i   = ((1 - giou_i) - [sum(w) > 1] loss) / D
template <typename T>
void backward(const MaskedProblem& problem, const SlotView& grad, const void* loss, double divisor,
              const MaskedGradients& out) {
  const LossScale<T> scale(load_scalar<T>(grad), divisor);
  const T per_weight = scale.of(T(1)), eps = static_cast<T>(problem.eps);
  const T loss_share = out.weight.exists() && divisor > 1 ? *static_cast<const T*>(loss) : T(0);
  int64_t valid[kBlock];
  T weights[kBlock];
  for_each_block(0, problem.slots, [&](const int64_t* block, int count) {
    if (out.weight.exists()) {
      BoxBlock<T> predicted, wanted;
      T numbers[kBlock];
      Pairs{problem.pred, problem.target, block, block, count}.load(predicted, wanted);
      giou_of_blocks(predicted, wanted, eps, count, numbers);
      for (int i = 0; i < count; ++i) {
        numbers[i] = per_weight * (T(1) - numbers[i] - loss_share);
      }
      store_numbers(out.weight, block, count, numbers);
    }
    // Padding gets a gradient of exactly 0, even where its prediction is not a number.
    const int found = find_valid(problem, block, count, valid, weights);
    for (int i = 0; i < found; ++i) {
      weights[i] = -scale.of(weights[i]);
    }
    if (out.pred.exists()) zero_boxes(out.pred, block[0], count);
    if (out.target.exists()) zero_boxes(out.target, block[0], count);
    write_gradients(Pairs{problem.pred, problem.target, valid, valid, found}, weights, eps, out.pred,
                    out.target);
  });
}

}  // namespace

void lensbox_cpu_masked_giou_loss_forward(const MaskedProblem& problem, void* loss, double* normalizer) {
  const Sums sums = (problem.in_double ? sum_losses<double> : sum_losses<float>)(problem);
  store_loss(loss, normalizer, problem.in_double, sums.loss, sums.weight < 1 ? 1 : sums.weight);
}

void lensbox_cpu_masked_giou_loss_backward(const MaskedProblem& problem, const SlotView& grad,
                                           const void* loss, const double* normalizer,
                                           const MaskedGradients& out) {
  (problem.in_double ? backward<double> : backward<float>)(problem, grad, loss, *normalizer, out);
}

// The backward reads the boxes again, from the cache.
void lensbox_cpu_masked_giou_loss_and_grad(const MaskedProblem& problem, void* loss, double* normalizer,
                                           const SlotView& grad_pred) {
  lensbox_cpu_masked_giou_loss_forward(problem, loss, normalizer);
  lensbox_cpu_masked_giou_loss_backward(problem, SlotView{}, loss, normalizer, {grad_pred, {}, {}});
}

}  // namespace lensbox
