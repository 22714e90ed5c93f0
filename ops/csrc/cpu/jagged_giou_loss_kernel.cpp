#include <ATen/Parallel.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <vector>

#include "../checks.h"
#include "../jagged.h"
#include "../outputs.h"
#include "../slots.h"
#include "block_math.h"

namespace lensbox {
namespace {

constexpr int64_t kImagesPerChunk = 32;  // the chunks are summed in order, whatever the number of threads

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

template <typename T>
double forward_kernel(const SlotView& pred, int64_t slots, const SlotView& targets,
                      const std::vector<Segment>& segments, T eps) {
  const auto images = static_cast<int64_t>(segments.size());
  std::vector<double> partial((images + kImagesPerChunk - 1) / kImagesPerChunk);
  at::parallel_for(0, static_cast<int64_t>(partial.size()), 1, [&](int64_t begin, int64_t end) {
    BoxBlock<T> predicted, wanted;
    T gious[kBlock];
    for (int64_t chunk = begin; chunk < end; ++chunk) {
      const int64_t first = chunk * kImagesPerChunk;
      for_each_pair_block(first, std::min(images, first + kImagesPerChunk), slots, segments,
                          [&](const int64_t* pred_slots, const int64_t* target_slots, int count) {
                            load_boxes(pred, pred_slots, count, predicted);
                            load_boxes(targets, target_slots, count, wanted);
                            giou_of_blocks(predicted, wanted, eps, count, gious);
                            for (int i = 0; i < count; ++i) {
                              partial[chunk] += T(1) - gious[i];
                            }
                          });
    }
  });
  double sum = 0;
  for (const double of_chunk : partial) {
    sum += of_chunk;
  }
  return sum;
}

// d loss / d box = -1 / D  d giou / d box, with D the number of pairs, at least 1; slots without a target get
// 0.
template <typename T>
void backward_kernel(const SlotView& pred, int64_t slots, const SlotView& targets,
                     const std::vector<Segment>& segments, T eps, T factor, const SlotView* grad_pred,
                     const SlotView* grad_targets) {
  const auto images = static_cast<int64_t>(segments.size());
  at::parallel_for(0, images, kImagesPerChunk, [&](int64_t begin, int64_t end) {
    BoxBlock<T> predicted, wanted, result;
    T factors[kBlock];
    std::fill_n(factors, kBlock, factor);
    for_each_pair_block(begin, end, slots, segments,
                        [&](const int64_t* pred_slots, const int64_t* target_slots, int count) {
                          load_boxes(pred, pred_slots, count, predicted);
                          load_boxes(targets, target_slots, count, wanted);
                          if (grad_pred != nullptr) {
                            gradients_of_blocks(predicted, wanted, eps, factors, count, result);
                            store_gradients(*grad_pred, pred_slots, count, result);
                          }
                          if (grad_targets != nullptr) {
                            gradients_of_blocks(wanted, predicted, eps, factors, count, result);
                            store_gradients(*grad_targets, target_slots, count, result);
                          }
                        });
    if (grad_pred == nullptr) return;
    for (int64_t image = begin; image < end; ++image) {
      const int64_t filled = segments[image].count;
      zero_boxes(*grad_pred, image * slots + filled, slots - filled);
    }
  });
}

std::tuple<Tensor, Tensor> jagged_giou_loss_forward_cpu(const Tensor& pred, const Tensor& targets,
                                                        const Tensor& offsets, double eps) {
  const auto [loss, normalizer] = jagged_giou_loss_forward_outputs(pred, targets, offsets, eps);
  const auto segments = read_segments("lensbox::jagged_giou_loss", pred, targets, offsets);
  const double divisor = std::max<double>(1, static_cast<double>(targets.size(0)));
  const SlotView pred_view = box_slots(pred), target_view = box_slots(targets);
  const double sum =
      math_dtype(pred, targets) == at::kDouble
          ? forward_kernel<double>(pred_view, pred.size(1), target_view, segments, eps)
          : forward_kernel<float>(pred_view, pred.size(1), target_view, segments, static_cast<float>(eps));
  loss.fill_(sum / divisor);
  normalizer.fill_(divisor);
  return {loss, normalizer};
}

std::tuple<Tensor, Tensor> jagged_giou_loss_backward_cpu(const Tensor& grad, const Tensor& pred,
                                                         const Tensor& targets, const Tensor& offsets,
                                                         const Tensor& normalizer, double eps,
                                                         std::array<bool, 2> output_mask) {
  const auto [grad_pred, grad_targets] =
      jagged_giou_loss_backward_outputs(grad, pred, targets, offsets, normalizer, eps, output_mask);
  const auto segments = read_segments("lensbox::_jagged_giou_loss_backward", pred, targets, offsets);
  const SlotView pred_view = box_slots(pred), target_view = box_slots(targets);
  const SlotView pred_out = output_mask[0] ? box_slots(grad_pred) : SlotView{};
  const SlotView target_out = output_mask[1] ? box_slots(grad_targets) : SlotView{};
  const double factor = -grad.item<double>() / normalizer.item<double>();
  const auto run = [&](auto math) {
    using T = decltype(math);
    backward_kernel<T>(pred_view, pred.size(1), target_view, segments, static_cast<T>(eps),
                       static_cast<T>(factor), output_mask[0] ? &pred_out : nullptr,
                       output_mask[1] ? &target_out : nullptr);
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
