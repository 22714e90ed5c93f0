// What every backend asks of its arguments. Each failed check names the op, the argument, the rule and the
// value. They hold for symbolic shapes too, and none reads a tensor's values.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

namespace lensbox {

using at::Tensor;

// eps is in square pixels. Below 1e-18 a gradient of finite boxes could overflow (see box_math.h).
void check_eps(const char* op, double eps);

// boxes1, boxes2: boxes of any supported dtype on one device. Shapes are checked by the broadcast that
// follows.
void check_box_pair(const char* op, const Tensor& boxes1, const Tensor& boxes2);

// Also that each has the dimension of rows.
void check_box_matrices(const char* op, const Tensor& boxes1, const Tensor& boxes2);

void check_loss_arguments(const char* op, const Tensor& pred, const Tensor& target,
                          const std::optional<Tensor>& weight, double eps);

// Only what shapes and dtypes tell; whether the offsets make sense is for the kernels, which read them.
void check_jagged_arguments(const char* op, const Tensor& pred, const Tensor& targets, const Tensor& offsets,
                            double eps);

void check_nms_arguments(const Tensor& boxes, const Tensor& scores, double iou_threshold,
                         double score_threshold, const c10::SymInt& max_candidates,
                         const c10::SymInt& max_detections, const std::optional<Tensor>& categories);

// Of `padded_nms`, where they are tensors.
void check_threshold_tensor(const char* name, const Tensor& threshold);

void check_letterbox_arguments(at::TensorList images, int64_t height, int64_t width, int64_t channels,
                               int64_t fill);

// The gradient of an op's output has its shape, floating-point dtype and device, which is that of `input`.
void check_grad(const char* op, const Tensor& grad, c10::SymIntArrayRef shape, const char* input_name,
                const Tensor& input);

// A scalar that the forward half of a loss gave.
void check_saved(const char* op, const char* name, const Tensor& saved, at::ScalarType dtype,
                 const Tensor& pred);

// A gradient that output_mask[position] asks for is one of a floating-point input.
void check_wanted(const char* op, bool wanted, int position, const char* name, const Tensor& input);

// float64 where either holds float64, otherwise float32: the dtype that the arithmetic is done in.
at::ScalarType math_dtype(const Tensor& a, const Tensor& b);

// The floating-point dtype that both promote to; float32 where both hold integers.
at::ScalarType giou_dtype(const Tensor& boxes1, const Tensor& boxes2);

}  // namespace lensbox
