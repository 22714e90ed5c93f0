#include <ATen/ops/ones_like.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "../checks.h"
#include "../outputs.h"
#include "loss_pairs.h"

namespace lensbox {
namespace {

constexpr int64_t kChunk = 4096;  // slots

constexpr int kGroup = sizeof(uint64_t);  // slots skipped at once where all are padding, a byte each

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

// The inputs as views. They are valid while the tensors that they were made of are.
struct MaskedInputs {
  Tensor kept[3];
  SlotView pred, target, weight;
  const SlotView* weights;
  int64_t slots;

  MaskedInputs(const Tensor& pred_boxes, const Tensor& target_boxes,
               const std::optional<Tensor>& weight_numbers)
      : kept{viewable(pred_boxes, 1), viewable(target_boxes, 1),
             weight_numbers.has_value() ? viewable(*weight_numbers, 0) : Tensor()},
        pred(box_slots(kept[0])),
        target(box_slots(kept[1])),
        weight(weight_numbers.has_value() ? number_slots(kept[2]) : SlotView{}),
        weights(weight_numbers.has_value() ? &weight : nullptr),
        slots(pred_boxes.numel() / 4) {}
};

std::tuple<Tensor, Tensor> masked_giou_loss_forward_cpu(const Tensor& pred, const Tensor& target,
                                                        const std::optional<Tensor>& weight, double eps) {
  const auto [loss, normalizer] = masked_giou_loss_forward_outputs(pred, target, weight, eps);
  const MaskedInputs inputs(pred, target, weight);
  const auto run = [&](auto math) {
    using T = decltype(math);
    return sum_of_chunks((inputs.slots + kChunk - 1) / kChunk, [&](int64_t chunk) {
      Sums sums;
      int64_t valid[kBlock];
      T weights[kBlock];
      for_each_block(
          chunk * kChunk, std::min(inputs.slots, (chunk + 1) * kChunk), [&](const int64_t* slots, int count) {
            const int found = find_valid(inputs.target, inputs.weights, slots, count, valid, weights);
            add_losses(Pairs{inputs.pred, inputs.target, valid, valid, found}, weights, static_cast<T>(eps),
                       sums);
          });
      return sums;
    });
  };
  const Sums sums = loss.scalar_type() == at::kDouble ? run(double{}) : run(float{});
  store_loss(loss, normalizer, sums.loss, sums.weight < 1 ? 1 : sums.weight);
  return {loss, normalizer};
}

// loss = sum(w_i (1 - giou_i)) / D with D = max(sum(w), 1), so
//   d loss / d box_i = -w_i / D  d giou_i / d box_i
//   d loss / d w_i   = ((1 - giou_i) - [sum(w) > 1] loss) / D
std::tuple<Tensor, Tensor, Tensor> masked_giou_loss_backward_cpu(const Tensor& grad, const Tensor& pred,
                                                                 const Tensor& target,
                                                                 const std::optional<Tensor>& weight,
                                                                 const std::optional<Tensor>& loss,
                                                                 const Tensor& normalizer, double eps,
                                                                 std::array<bool, 3> output_mask) {
  const auto [grad_pred, grad_target, grad_weight] =
      masked_giou_loss_backward_outputs(grad, pred, target, weight, loss, normalizer, eps, output_mask);
  const MaskedInputs inputs(pred, target, weight);
  const SlotView pred_out = box_slots(grad_pred), target_out = box_slots(grad_target),
                 weight_out = number_slots(grad_weight);
  const double divisor = normalizer.item<double>();
  const double share = output_mask[2] && divisor > 1 ? loss->item<double>() : 0;
  const auto run = [&](auto math) {
    using T = decltype(math);
    const LossScale<T> scale(static_cast<T>(grad.item<double>()), divisor);
    const T per_weight = scale.of(T(1)), loss_share = static_cast<T>(share), clamp = static_cast<T>(eps);
    at::parallel_for(0, inputs.slots, kChunk, [&](int64_t begin, int64_t end) {
      int64_t valid[kBlock];
      T weights[kBlock];
      for_each_block(begin, end, [&](const int64_t* block, int count) {
        if (output_mask[2]) {
          BoxBlock<T> predicted, wanted;
          T numbers[kBlock];
          Pairs{inputs.pred, inputs.target, block, block, count}.load(predicted, wanted);
          giou_of_blocks(predicted, wanted, clamp, count, numbers);
          for (int i = 0; i < count; ++i) {
            numbers[i] = per_weight * (T(1) - numbers[i] - loss_share);
          }
          store_numbers(weight_out, block, count, numbers);
        }
        // Padding gets a gradient of exactly 0, even where its prediction is not a number.
        const int found = find_valid(inputs.target, inputs.weights, block, count, valid, weights);
        for (int i = 0; i < found; ++i) {
          weights[i] = -scale.of(weights[i]);
        }
        if (output_mask[0]) zero_boxes(pred_out, block[0], count);
        if (output_mask[1]) zero_boxes(target_out, block[0], count);
        write_gradients(Pairs{inputs.pred, inputs.target, valid, valid, found}, weights, clamp,
                        output_mask[0] ? &pred_out : nullptr, output_mask[1] ? &target_out : nullptr);
      });
    });
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
