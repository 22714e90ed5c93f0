// The checks of arguments, the same for all backends. A failed check names the op, the argument, the rule and
// the value. Shapes may be symbolic; no check reads a tensor's values.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <optional>
#include <string_view>

#include "fit_math.h"

namespace lensbox {

using at::Tensor;

// eps is in square pixels. Below 1e-18 a gradient of finite boxes could overflow (see box_math.h).
void check_eps(const char* op, double eps);

// Check that both hold boxes of supported dtypes on one device. The broadcast checks the leading dimensions.
void check_box_pair(const char* op, const Tensor& boxes1, const Tensor& boxes2);

// Check a pair of boxes of at least two dimensions each.
void check_box_matrices(const char* op, const Tensor& boxes1, const Tensor& boxes2);

void check_loss_arguments(const char* op, const Tensor& pred, const Tensor& target,
                          const std::optional<Tensor>& weight, double eps);

// Check shapes and dtypes; the kernels check the values of the offsets.
void check_jagged_arguments(const char* op, const Tensor& pred, const Tensor& targets, const Tensor& offsets,
                            double eps);

void check_nms_arguments(const Tensor& boxes, const Tensor& scores, double iou_threshold,
                         double score_threshold, const c10::SymInt& max_candidates,
                         const c10::SymInt& max_detections, const std::optional<Tensor>& categories);

// Check a threshold of `padded_nms` that is a tensor.
void check_threshold_tensor(const char* name, const Tensor& threshold);

// How `fit` makes canvases.
struct FitOptions {
  int64_t channels;
  FitMode mode;
  Filter filter;
  bool is_bgr;
  at::ScalarType dtype;
  std::array<float, 3> mean, deviation;  // of the canvas's channels
};

FitOptions check_fit_arguments(at::TensorList images, int64_t height, int64_t width, std::string_view fit,
                               std::string_view filter, std::string_view order, int64_t fill,
                               std::optional<at::ArrayRef<double>> mean,
                               std::optional<at::ArrayRef<double>> deviation,
                               std::optional<at::ScalarType> dtype);

// Return the bytes of a JPEG file, contiguous uint8 [N] on the CPU.
const uint8_t* bytes_of_file(const Tensor& file);

// Check that the gradient of an output has its shape, a floating-point dtype, and the device of `input`.
void check_grad(const char* op, const Tensor& grad, c10::SymIntArrayRef shape, const char* input_name,
                const Tensor& input);

// Check a scalar that the forward half of a loss returned.
void check_saved(const char* op, const char* name, const Tensor& saved, at::ScalarType dtype,
                 const Tensor& pred);

// Check that output_mask[position] asks only for the gradient of a floating-point input.
void check_wanted(const char* op, bool wanted, int position, const char* name, const Tensor& input);

// Return the dtype of the arithmetic: float64 if either holds float64, else float32.
at::ScalarType math_dtype(const Tensor& a, const Tensor& b);

// Return the floating-point dtype that both promote to; float32 if both hold integers.
at::ScalarType giou_dtype(const Tensor& boxes1, const Tensor& boxes2);

}  // namespace lensbox
