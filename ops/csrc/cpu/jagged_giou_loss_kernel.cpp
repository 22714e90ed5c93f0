#include <torch/library.h>

#include <algorithm>
#include <array>
#include <vector>

#include "../checks.h"
#include "../outputs.h"
#include "loss_pairs.h"

namespace lensbox {
namespace {

constexpr int64_t kImagesPerChunk = 32;

// The segment of every image. On the CPU the offsets can be read, so a broken rule is an error.
std::vector<Segment> read_segments(const char* op, const Tensor& pred, const Tensor& targets,
                                   const Tensor& offsets) {
  const int64_t images = pred.size(0);
  const SlotView view = number_slots(offsets);
  std::vector<int64_t> ends(images + 1);
  for_each_block(0, images + 1, [&](const int64_t* slots, int count) {
    load_numbers(view, slots, count, ends.data() + slots[0]);
  });
  TORCH_CHECK_VALUE(images > 0 || targets.size(0) == 0, op,
                    ": targets must be empty where pred has no images, got ", targets.sizes());
  TORCH_CHECK_VALUE(images > 0 || ends[0] == 0, op,
                    ": offsets must be [0] where pred has no images, got offsets[0] = ", ends[0]);
  std::vector<Segment> segments(images);
  for (int64_t image = 0; image < images; ++image) {
    const int64_t first = ends[image], end = ends[image + 1];
    TORCH_CHECK_VALUE(is_valid_segment(image, first, end, images, pred.size(1), targets.size(0)), op,
                      ": offsets must start at 0, never fall, end at the number of targets (",
                      targets.size(0), ") and give no image more targets than pred has slots (", pred.size(1),
                      "), got offsets[", image, "] = ", first, ", offsets[", image + 1, "] = ", end);
    segments[image] = {first, end - first};
  }
  return segments;
}

// Calls body(pred slots, target slots, count) for blocks of the pairs of the images [begin, end), in order.
template <typename Body>
void for_each_pair_block(int64_t begin, int64_t end, int64_t slots, const std::vector<Segment>& segments,
                         const Body& body) {
  int64_t pred_slots[kBlock], target_slots[kBlock];
  int count = 0;
  for (int64_t image = begin; image < end; ++image) {
    for (int64_t i = 0; i < segments[image].count; ++i) {
      pred_slots[count] = image * slots + i;
      target_slots[count] = segments[image].first + i;
      if (++count < kBlock) continue;
      body(pred_slots, target_slots, count);
      count = 0;
    }
  }
  if (count > 0) body(pred_slots, target_slots, count);
}

std::tuple<Tensor, Tensor> jagged_giou_loss_forward_cpu(const Tensor& pred, const Tensor& targets,
                                                        const Tensor& offsets, double eps) {
  const auto [loss, normalizer] = jagged_giou_loss_forward_outputs(pred, targets, offsets, eps);
  const auto segments = read_segments("lensbox::jagged_giou_loss", pred, targets, offsets);
  const SlotView pred_view = box_slots(pred), target_view = box_slots(targets);
  const int64_t images = pred.size(0), slots = pred.size(1);
  const auto run = [&](auto math) {
    using T = decltype(math);
    T ones[kBlock];
    std::fill_n(ones, kBlock, T(1));
    return sum_of_chunks((images + kImagesPerChunk - 1) / kImagesPerChunk, [&](int64_t chunk) {
      Sums sums;
      const int64_t first = chunk * kImagesPerChunk, end = std::min(images, first + kImagesPerChunk);
      for_each_pair_block(first, end, slots, segments,
                          [&](const int64_t* pred_slots, const int64_t* target_slots, int count) {
                            add_losses(Pairs{pred_view, target_view, pred_slots, target_slots, count}, ones,
                                       static_cast<T>(eps), sums);
                          });
      return sums;
    });
  };
  const Sums sums = math_dtype(pred, targets) == at::kDouble ? run(double{}) : run(float{});
  store_loss(loss, normalizer, sums.loss, std::max(1.0, static_cast<double>(targets.size(0))));
  return {loss, normalizer};
}

// d loss / d box = -1 / D  d giou / d box, with D the number of pairs, at least 1; slots without a target get
// 0.
std::tuple<Tensor, Tensor> jagged_giou_loss_backward_cpu(const Tensor& grad, const Tensor& pred,
                                                         const Tensor& targets, const Tensor& offsets,
                                                         const Tensor& normalizer, double eps,
                                                         std::array<bool, 2> output_mask) {
  const auto [grad_pred, grad_targets] =
      jagged_giou_loss_backward_outputs(grad, pred, targets, offsets, normalizer, eps, output_mask);
  const auto segments = read_segments("lensbox::_jagged_giou_loss_backward", pred, targets, offsets);
  const SlotView pred_view = box_slots(pred), target_view = box_slots(targets);
  const SlotView pred_out = box_slots(grad_pred), target_out = box_slots(grad_targets);
  const int64_t slots = pred.size(1);
  const auto run = [&](auto math) {
    using T = decltype(math);
    T factors[kBlock];
    std::fill_n(factors, kBlock,
                -LossScale<T>(static_cast<T>(grad.item<double>()), normalizer.item<double>()).of(T(1)));
    at::parallel_for(0, pred.size(0), kImagesPerChunk, [&](int64_t begin, int64_t end) {
      for_each_pair_block(begin, end, slots, segments,
                          [&](const int64_t* pred_slots, const int64_t* target_slots, int count) {
                            write_gradients(Pairs{pred_view, target_view, pred_slots, target_slots, count},
                                            factors, static_cast<T>(eps),
                                            output_mask[0] ? &pred_out : nullptr,
                                            output_mask[1] ? &target_out : nullptr);
                          });
      for (int64_t image = begin; output_mask[0] && image < end; ++image) {
        const int64_t filled = segments[image].count;
        zero_boxes(pred_out, image * slots + filled, slots - filled);
      }
    });
  };
  math_dtype(pred, targets) == at::kDouble ? run(double{}) : run(float{});
  return {grad_pred, grad_targets};
}

}  // namespace
}  // namespace lensbox

TORCH_LIBRARY_IMPL(lensbox, CPU, m) {
  m.impl("_jagged_giou_loss_forward", lensbox::jagged_giou_loss_forward_cpu);
  m.impl("_jagged_giou_loss_backward", lensbox::jagged_giou_loss_backward_cpu);
}
