// Check the arguments of every op and allocate its outputs. CPU and CUDA fill the returned tensors; the same
// functions are the Meta kernels. Shapes may be symbolic.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <optional>
#include <tuple>

#include "checks.h"

namespace lensbox {

using at::Tensor;

// Gradients of backward ops have the shape of their input (giou and pairwise_giou: with the leading
// dimensions broadcast). Gradients that output_mask does not ask for are empty tensors. Asking for the
// gradient of integers is an error.

Tensor giou_outputs(const Tensor& boxes1, const Tensor& boxes2, double eps);
std::tuple<Tensor, Tensor> giou_backward_outputs(const Tensor& grad, const Tensor& boxes1,
                                                 const Tensor& boxes2, double eps,
                                                 std::array<bool, 2> output_mask);

Tensor pairwise_giou_outputs(const Tensor& boxes1, const Tensor& boxes2, double eps);
std::tuple<Tensor, Tensor> pairwise_giou_backward_outputs(const Tensor& grad, const Tensor& boxes1,
                                                          const Tensor& boxes2, double eps,
                                                          std::array<bool, 2> output_mask);

std::tuple<Tensor, Tensor> masked_giou_loss_forward_outputs(const Tensor& pred, const Tensor& target,
                                                            const std::optional<Tensor>& weight, double eps);
std::tuple<Tensor, Tensor, Tensor> masked_giou_loss_backward_outputs(
    const Tensor& grad, const Tensor& pred, const Tensor& target, const std::optional<Tensor>& weight,
    const std::optional<Tensor>& loss, const Tensor& normalizer, double eps, std::array<bool, 3> output_mask);

std::tuple<Tensor, Tensor> masked_giou_loss_and_grad_outputs(const Tensor& pred, const Tensor& target,
                                                             const std::optional<Tensor>& weight, double eps);

std::tuple<Tensor, Tensor> jagged_giou_loss_forward_outputs(const Tensor& pred, const Tensor& targets,
                                                            const Tensor& offsets, double eps);
std::tuple<Tensor, Tensor> jagged_giou_loss_backward_outputs(const Tensor& grad, const Tensor& pred,
                                                             const Tensor& targets, const Tensor& offsets,
                                                             const Tensor& normalizer, double eps,
                                                             std::array<bool, 2> output_mask);

std::tuple<Tensor, Tensor, Tensor, Tensor> padded_nms_outputs(const Tensor& boxes, const Tensor& scores,
                                                              double iou_threshold, double score_threshold,
                                                              c10::SymInt max_candidates,
                                                              c10::SymInt max_detections,
                                                              const std::optional<Tensor>& categories);

std::tuple<Tensor, Tensor> fit_outputs(at::TensorList images, int64_t height, int64_t width,
                                       const FitOptions& options);

}  // namespace lensbox
