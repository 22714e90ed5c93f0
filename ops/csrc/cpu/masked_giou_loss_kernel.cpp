#include <algorithm>
#include <cstring>

#include "box_pairs.h"
#include "launchers.h"

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

int64_t parts_of(const MaskedProblem& problem) {
  return (problem.slots + kPartSlots - 1) / kPartSlots;
}

// The slots of a part.
struct SlotRange {
  int64_t begin, end;

  SlotRange(const MaskedProblem& problem, int64_t part)
      : begin(part * kPartSlots), end(std::min(begin + kPartSlots, problem.slots)) {}
};

// Return the walk of the valid pairs of a part, for sum_losses() and write_loss_gradients().
template <typename T>
auto walk_of(const MaskedProblem& problem) {
  return [&problem](int64_t part, const auto& body) {
    int64_t valid[kBlock];
    T weights[kBlock];
    const SlotRange range(problem, part);
    for_each_block(range.begin, range.end, [&](const int64_t* slots, int count) {
      const int found = find_valid(problem, slots, count, valid, weights);
      body(Pairs{problem.pred, problem.target, valid, valid, found}, weights);
    });
  };
}

// d loss / d w_i = ((1 - giou_i) - [sum(w) > 1] loss) / D
template <typename T>
void write_weight_gradients(const MaskedProblem& problem, const SlotRange& range, T per_weight, T loss_share,
                            const SlotView& out) {
  BoxBlock<T> predicted, wanted;
  T numbers[kBlock];
  for_each_block(range.begin, range.end, [&](const int64_t* slots, int count) {
    Pairs{problem.pred, problem.target, slots, slots, count}.load(predicted, wanted);
    giou_of_blocks(predicted, wanted, static_cast<T>(problem.eps), count, numbers);
    for (int i = 0; i < count; ++i) {
      numbers[i] = per_weight * (T(1) - numbers[i] - loss_share);
    }
    store_numbers(out, slots, count, numbers);
  });
}

template <typename T>
void backward(const MaskedProblem& problem, const SlotView& grad, const void* loss, double divisor,
              const MaskedGradients& out) {
  const LossScale<T> scale(load_scalar<T>(grad), divisor);
  const T loss_share = out.weight.exists() && divisor > 1 ? *static_cast<const T*>(loss) : T(0);
  parallel_for(parts_of(problem), [&](int64_t part) {
    const SlotRange range(problem, part);
    if (out.weight.exists()) {
      write_weight_gradients(problem, range, scale.of(T(1)), loss_share, out.weight);
    }
    // Padding gets a gradient of exactly 0, even where its prediction is not a number.
    for (const SlotView& boxes : {out.pred, out.target}) {
      if (boxes.exists()) zero_boxes(boxes, range.begin, range.end - range.begin);
    }
    write_loss_gradients(part, walk_of<T>(problem), scale, static_cast<T>(problem.eps), out.pred, out.target);
  });
}

}  // namespace

void lensbox_cpu_masked_giou_loss_forward(const MaskedProblem& problem, void* loss, double* normalizer) {
  const int64_t parts = parts_of(problem);
  const Sums sums = problem.in_double
                        ? sum_losses(parts, walk_of<double>(problem), problem.eps)
                        : sum_losses(parts, walk_of<float>(problem), static_cast<float>(problem.eps));
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
