// Pairs of boxes in blocks, for the CPU kernels of `giou` and of both losses.
#pragma once

#include <vector>

#include "box_block.h"
#include "parallel.h"

namespace lensbox {

struct Sums {
  double loss = 0;
  double weight = 0;
};

// At most kBlock pairs: slot pred_slots[i] of `pred` with slot target_slots[i] of `target`.
struct Pairs {
  const SlotView &pred, &target;
  const int64_t *pred_slots, *target_slots;
  int count;

  template <typename T>
  void load(BoxBlock<T>& predicted, BoxBlock<T>& wanted) const {
    load_boxes(pred, pred_slots, count, predicted);
    load_boxes(target, target_slots, count, wanted);
  }
};

// A loss is computed in parts of about this number of slots: the order of its sum depends on nothing else.
constexpr int64_t kPartSlots = 8192;

// Return the sums of weight * (1 - giou) and of the weights. walk(part, body) calls body(pairs, weights) for
// all pairs of one of `parts` parts of a loss, here and below.
template <typename T, typename Walk>
Sums sum_losses(int64_t parts, const Walk& walk, T eps) {
  std::vector<Sums> of_part(parts);
  parallel_for(parts, [&](int64_t part) {
    Sums sums;
    BoxBlock<T> predicted, wanted;
    T gious[kBlock];
    walk(part, [&](const Pairs& pairs, const T* weights) {
      pairs.load(predicted, wanted);
      giou_of_blocks(predicted, wanted, eps, pairs.count, gious);
      for (int i = 0; i < pairs.count; ++i) {
        sums.loss += static_cast<double>(weights[i]) * static_cast<double>(T(1) - gious[i]);
        sums.weight += static_cast<double>(weights[i]);
      }
    });
    of_part[part] = sums;
  });
  Sums total;
  for (const Sums& sums : of_part) {
    total.loss += sums.loss;
    total.weight += sums.weight;
  }
  return total;
}

// Write factors[i] * d giou / d box of each pair to the slots of the gradients that exist.
template <typename T>
void write_gradients(const Pairs& pairs, const T* factors, T eps, const SlotView& grad_pred,
                     const SlotView& grad_target) {
  BoxBlock<T> predicted, wanted, result;
  pairs.load(predicted, wanted);
  if (grad_pred.exists()) {
    gradients_of_blocks(predicted, wanted, eps, factors, pairs.count, result);
    store_gradients(grad_pred, pairs.pred_slots, pairs.count, result);
  }
  if (grad_target.exists()) {
    gradients_of_blocks(wanted, predicted, eps, factors, pairs.count, result);
    store_gradients(grad_target, pairs.target_slots, pairs.count, result);
  }
}

// loss = sum(w_i (1 - giou_i)) / D with D = max(sum(w), 1), so d loss / d box_i = -w_i / D  d giou_i / d
// box_i.
template <typename T, typename Walk>
void write_loss_gradients(int64_t part, const Walk& walk, const LossScale<T>& scale, T eps,
                          const SlotView& grad_pred, const SlotView& grad_target) {
  T factors[kBlock];
  walk(part, [&](const Pairs& pairs, const T* weights) {
    for (int i = 0; i < pairs.count; ++i) {
      factors[i] = -scale.of(weights[i]);
    }
    write_gradients(pairs, factors, eps, grad_pred, grad_target);
  });
}

// Write the loss and its divisor, each a scalar.
inline void store_loss(void* loss, double* normalizer, bool in_double, double sum, double divisor) {
  if (in_double) {
    *static_cast<double*>(loss) = sum / divisor;
  } else {
    *static_cast<float*>(loss) = static_cast<float>(sum / divisor);
  }
  *normalizer = divisor;
}

// Return the gradient of the loss, a scalar of any dtype; 1 if the view has no data.
template <typename T>
T load_scalar(const SlotView& grad) {
  T value(1);
  const int64_t slot = 0;
  if (grad.exists()) load_numbers(grad, &slot, 1, &value);
  return value;
}

}  // namespace lensbox
