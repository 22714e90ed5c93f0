// The ops as C++ functions that go through the dispatcher.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <array>
#include <optional>
#include <tuple>

namespace lensbox {

using at::Tensor;

template <typename Function>
auto find_op(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Function>();
}

inline Tensor giou(const Tensor& boxes1, const Tensor& boxes2, double eps) {
  static auto op = find_op<decltype(giou)>("lensbox::giou");
  return op.call(boxes1, boxes2, eps);
}

inline std::tuple<Tensor, Tensor> giou_backward(const Tensor& grad, const Tensor& boxes1,
                                                const Tensor& boxes2, double eps,
                                                std::array<bool, 2> output_mask) {
  static auto op = find_op<decltype(giou_backward)>("lensbox::_giou_backward");
  return op.call(grad, boxes1, boxes2, eps, output_mask);
}

inline Tensor pairwise_giou(const Tensor& boxes1, const Tensor& boxes2, double eps) {
  static auto op = find_op<decltype(pairwise_giou)>("lensbox::pairwise_giou");
  return op.call(boxes1, boxes2, eps);
}

inline std::tuple<Tensor, Tensor> pairwise_giou_backward(const Tensor& grad, const Tensor& boxes1,
                                                         const Tensor& boxes2, double eps,
                                                         std::array<bool, 2> output_mask) {
  static auto op = find_op<decltype(pairwise_giou_backward)>("lensbox::_pairwise_giou_backward");
  return op.call(grad, boxes1, boxes2, eps, output_mask);
}

inline std::tuple<Tensor, Tensor> masked_giou_loss_forward(const Tensor& pred, const Tensor& target,
                                                           const std::optional<Tensor>& weight, double eps) {
  static auto op = find_op<decltype(masked_giou_loss_forward)>("lensbox::_masked_giou_loss_forward");
  return op.call(pred, target, weight, eps);
}

inline std::tuple<Tensor, Tensor, Tensor> masked_giou_loss_backward(
    const Tensor& grad, const Tensor& pred, const Tensor& target, const std::optional<Tensor>& weight,
    const Tensor& loss, const Tensor& normalizer, double eps, std::array<bool, 3> output_mask) {
  static auto op = find_op<decltype(masked_giou_loss_backward)>("lensbox::_masked_giou_loss_backward");
  return op.call(grad, pred, target, weight, loss, normalizer, eps, output_mask);
}

inline std::tuple<Tensor, Tensor> jagged_giou_loss_forward(const Tensor& pred, const Tensor& targets,
                                                           const Tensor& offsets, double eps) {
  static auto op = find_op<decltype(jagged_giou_loss_forward)>("lensbox::_jagged_giou_loss_forward");
  return op.call(pred, targets, offsets, eps);
}

inline std::tuple<Tensor, Tensor> jagged_giou_loss_backward(const Tensor& grad, const Tensor& pred,
                                                            const Tensor& targets, const Tensor& offsets,
                                                            const Tensor& normalizer, double eps,
                                                            std::array<bool, 2> output_mask) {
  static auto op = find_op<decltype(jagged_giou_loss_backward)>("lensbox::_jagged_giou_loss_backward");
  return op.call(grad, pred, targets, offsets, normalizer, eps, output_mask);
}

inline std::tuple<Tensor, Tensor, Tensor, Tensor> padded_nms(const Tensor& boxes, const Tensor& scores,
                                                             double iou_threshold, double score_threshold,
                                                             int64_t max_candidates, int64_t max_detections,
                                                             const std::optional<Tensor>& categories) {
  static auto op = find_op<decltype(padded_nms)>("lensbox::padded_nms");
  return op.call(boxes, scores, iou_threshold, score_threshold, max_candidates, max_detections, categories);
}

}  // namespace lensbox
