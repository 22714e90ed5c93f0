#include <ATen/Parallel.h>
#include <ATen/ops/ones_like.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "../checks.h"
#include "../outputs.h"
#include "../slots.h"
#include "block_math.h"

namespace lensbox {
namespace {

// Slots are summed in chunks of this size and the chunks in order, so the result does not depend on the
// number of threads.
constexpr int64_t kChunk = 4096;

constexpr int kGroup = sizeof(uint64_t);  // slots skipped at once where all are padding, a byte each

struct Sums {
  double loss = 0;
  double weight = 0;
};

// The valid ones among the consecutive slots[0..count): weight not 0, or, without weights, y2 of the target
// not 0. Writes them, with their weights, to the front of valid and weights.
template <typename T>
int find_valid(const SlotView& target, const SlotView* weight, const int64_t* slots, int count,
               int64_t* valid, T* weights) {
  T numbers[kBlock];
  if (weight != nullptr) {
    load_numbers(*weight, slots, count, numbers);
  } else {
    load_coordinate(target, 3, slots, count, numbers);
  }
  uint8_t is_valid[kBlock] = {};
  for (int i = 0; i < count; ++i) {
    is_valid[i] = numbers[i] != T(0);
  }
  int found = 0;
  for (int start = 0; start < count; start += kGroup) {
    uint64_t any;
    std::memcpy(&any, is_valid + start, kGroup);
    if (any == 0) continue;  // padding is the rule in a padded batch
    for (int i = start; i < std::min(start + kGroup, count); ++i) {
      valid[found] = slots[i];
      weights[found] = weight != nullptr ? numbers[i] : T(1);
      found += is_valid[i];
    }
  }
  return found;
}

template <typename T>
Sums sum_losses(const SlotView& pred, const SlotView& target, const SlotView* weight, T eps, int64_t begin,
                int64_t end) {
  Sums sums;
  BoxBlock<T> predicted, wanted;
  int64_t valid[kBlock];
  T weights[kBlock], gious[kBlock];
  for_each_block(begin, end, [&](const int64_t* slots, int count) {
    const int found = find_valid(target, weight, slots, count, valid, weights);
    load_boxes(pred, valid, found, predicted);
    load_boxes(target, valid, found, wanted);
    giou_of_blocks(predicted, wanted, eps, found, gious);
    for (int i = 0; i < found; ++i) {
      sums.loss += static_cast<double>(weights[i]) * static_cast<double>(T(1) - gious[i]);
      sums.weight += static_cast<double>(weights[i]);
    }
  });
  return sums;
}

template <typename T>
Sums forward_kernel(const SlotView& pred, const SlotView& target, const SlotView* weight, T eps,
                    int64_t slots) {
  const int64_t chunks = (slots + kChunk - 1) / kChunk;
  std::vector<Sums> partial(chunks);
  at::parallel_for(0, chunks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t c = begin; c < end; ++c) {
      partial[c] = sum_losses(pred, target, weight, eps, c * kChunk, std::min(slots, (c + 1) * kChunk));
    }
  });
  Sums total;
  for (const Sums& sums : partial) {
    total.loss += sums.loss;
    total.weight += sums.weight;
  }
  return total;
}

// Where the gradients go; nullptr for one that nobody asked for.
struct Gradients {
  const SlotView* pred;
  const SlotView* target;
  const SlotView* weight;
};

// loss = sum(w_i (1 - giou_i)) / D with D = max(sum(w), 1), so
//   d loss / d box_i = -w_i / D  d giou_i / d box_i
//   d loss / d w_i   = ((1 - giou_i) - [sum(w) > 1] loss) / D
template <typename T>
void backward_kernel(const SlotView& pred, const SlotView& target, const SlotView* weight, T eps, T upstream,
                     T loss, T normalizer, int64_t slots, const Gradients& grads) {
  const T per_weight = upstream / normalizer;
  const T loss_share = normalizer > T(1) ? loss : T(0);
  at::parallel_for(0, slots, kChunk, [&](int64_t begin, int64_t end) {
    BoxBlock<T> predicted, wanted, result;
    int64_t valid[kBlock];
    T weights[kBlock], numbers[kBlock];
    for_each_block(begin, end, [&](const int64_t* block, int count) {
      if (grads.weight != nullptr) {
        load_boxes(pred, block, count, predicted);
        load_boxes(target, block, count, wanted);
        giou_of_blocks(predicted, wanted, eps, count, numbers);
        for (int i = 0; i < count; ++i) {
          numbers[i] = per_weight * (T(1) - numbers[i] - loss_share);
        }
        store_numbers(*grads.weight, block, count, numbers);
      }
      // Padding gets a gradient of exactly 0, even where its prediction is not a number.
      const int found = find_valid(target, weight, block, count, valid, weights);
      load_boxes(pred, valid, found, predicted);
      load_boxes(target, valid, found, wanted);
      for (int i = 0; i < found; ++i) {
        weights[i] *= -per_weight;
      }
      const auto write = [&](const BoxBlock<T>& of, const BoxBlock<T>& against, const SlotView& out) {
        zero_boxes(out, block[0], count);
        gradients_of_blocks(of, against, eps, weights, found, result);
        store_gradients(out, valid, found, result);
      };
      if (grads.pred != nullptr) write(predicted, wanted, *grads.pred);
      if (grads.target != nullptr) write(wanted, predicted, *grads.target);
    });
  });
}

std::tuple<Tensor, Tensor> masked_giou_loss_forward_cpu(const Tensor& pred, const Tensor& target,
                                                        const std::optional<Tensor>& weight, double eps) {
  const auto [loss, normalizer] = masked_giou_loss_forward_outputs(pred, target, weight, eps);
  const SlotView pred_view = box_slots(pred);
  const SlotView target_view = box_slots(target);
  const SlotView weight_view = weight.has_value() ? number_slots(*weight) : SlotView{};
  const SlotView* weights = weight.has_value() ? &weight_view : nullptr;
  const int64_t slots = pred.numel() / 4;
  const bool in_double = loss.scalar_type() == at::kDouble;
  const Sums sums =
      in_double ? forward_kernel<double>(pred_view, target_view, weights, eps, slots)
                : forward_kernel<float>(pred_view, target_view, weights, static_cast<float>(eps), slots);
  const double divisor = sums.weight < 1 ? 1 : sums.weight;
  const auto store = [in_double](const Tensor& scalar, double value) {
    if (in_double) {
      *scalar.data_ptr<double>() = value;
    } else {
      *scalar.data_ptr<float>() = static_cast<float>(value);
    }
  };
  store(loss, sums.loss / divisor);
  store(normalizer, divisor);
  return {loss, normalizer};
}

std::tuple<Tensor, Tensor, Tensor> masked_giou_loss_backward_cpu(
    const Tensor& grad, const Tensor& pred, const Tensor& target, const std::optional<Tensor>& weight,
    const Tensor& loss, const Tensor& normalizer, double eps, std::array<bool, 3> output_mask) {
  const auto [grad_pred, grad_target, grad_weight] =
      masked_giou_loss_backward_outputs(grad, pred, target, weight, loss, normalizer, eps, output_mask);
  const SlotView pred_view = box_slots(pred);
  const SlotView target_view = box_slots(target);
  const SlotView weight_view = weight.has_value() ? number_slots(*weight) : SlotView{};
  const SlotView grad_views[] = {output_mask[0] ? box_slots(grad_pred) : SlotView{},
                                 output_mask[1] ? box_slots(grad_target) : SlotView{},
                                 output_mask[2] ? number_slots(grad_weight) : SlotView{}};
  const Gradients grads = {output_mask[0] ? &grad_views[0] : nullptr,
                           output_mask[1] ? &grad_views[1] : nullptr,
                           output_mask[2] ? &grad_views[2] : nullptr};
  const auto run = [&](auto math) {
    using T = decltype(math);
    backward_kernel<T>(pred_view, target_view, weight.has_value() ? &weight_view : nullptr,
                       static_cast<T>(eps), static_cast<T>(grad.item<double>()),
                       static_cast<T>(loss.item<double>()), static_cast<T>(normalizer.item<double>()),
                       pred.numel() / 4, grads);
  };
  math_dtype(pred, target) == at::kDouble ? run(double{}) : run(float{});
  return {grad_pred, grad_target, grad_weight};
}

// The backward reads the boxes again: they are in the cache.
std::tuple<Tensor, Tensor> masked_giou_loss_and_grad_cpu(const Tensor& pred, const Tensor& target,
                                                         const std::optional<Tensor>& weight, double eps) {
  check_loss_arguments("lensbox::masked_giou_loss_and_grad", pred, target, weight, eps);
  const auto [loss, normalizer] = masked_giou_loss_forward_cpu(pred, target, weight, eps);
  const auto [grad, grad_target, grad_weight] = masked_giou_loss_backward_cpu(
      at::ones_like(loss), pred, target, weight, loss, normalizer, eps, {true, false, false});
  return {loss, grad};
}

}  // namespace
}  // namespace lensbox

TORCH_LIBRARY_IMPL(lensbox, CPU, m) {
  m.impl("_masked_giou_loss_forward", lensbox::masked_giou_loss_forward_cpu);
  m.impl("_masked_giou_loss_backward", lensbox::masked_giou_loss_backward_cpu);
  m.impl("masked_giou_loss_and_grad", lensbox::masked_giou_loss_and_grad_cpu);
}
