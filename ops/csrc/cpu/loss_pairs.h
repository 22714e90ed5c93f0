// Pairs of boxes in blocks, for the CPU kernels of both losses.
#pragma once

#include "box_block.h"

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

// Add weights[i] * (1 - giou) of each pair to `sums`.
template <typename T>
void add_losses(const Pairs& pairs, const T* weights, T eps, Sums& sums) {
  BoxBlock<T> predicted, wanted;
  T gious[kBlock];
  pairs.load(predicted, wanted);
  giou_of_blocks(predicted, wanted, eps, pairs.count, gious);
  for (int i = 0; i < pairs.count; ++i) {
    sums.loss += static_cast<double>(weights[i]) * static_cast<double>(T(1) - gious[i]);
    sums.weight += static_cast<double>(weights[i]);
  }
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
