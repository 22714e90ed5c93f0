#include "checks.h"

#include <c10/core/ScalarType.h>

#include <cmath>
#include <string>

namespace lensbox {
namespace {

using at::ScalarType;

bool is_box_dtype(ScalarType dtype) {
  switch (dtype) {
    case ScalarType::Double:
    case ScalarType::Float:
    case ScalarType::Half:
    case ScalarType::BFloat16:
    case ScalarType::Byte:
    case ScalarType::Short:
    case ScalarType::Int:
    case ScalarType::Long:
      return true;
    default:
      return false;
  }
}

void check_box_dtype(const char* op, const char* name, const Tensor& boxes) {
  TORCH_CHECK_TYPE(is_box_dtype(boxes.scalar_type()), op, ": ", name,
                   " must be float64, float32, float16, bfloat16, uint8, int16, int32 or int64, got ",
                   boxes.scalar_type());
}

void check_floating_dtype(const char* op, const char* name, const Tensor& tensor) {
  TORCH_CHECK_TYPE(at::isFloatingType(tensor.scalar_type()) && is_box_dtype(tensor.scalar_type()), op, ": ",
                   name, " must be float64, float32, float16 or bfloat16, got ", tensor.scalar_type());
}

void check_last_dimension(const char* op, const char* name, const Tensor& boxes) {
  TORCH_CHECK(boxes.dim() >= 1 && boxes.sym_size(-1) == 4, op, ": ", name,
              " must have shape [..., 4] (xyxy), got ", boxes.sym_sizes());
}

void check_same_device(const char* op, const char* name, const Tensor& tensor, const char* other_name,
                       const Tensor& other) {
  TORCH_CHECK(tensor.device() == other.device(), op, ": ", name, " must be on the device of ", other_name,
              " (", other.device(), "), got ", tensor.device());
}

}  // namespace

void check_eps(const char* op, double eps) {
  TORCH_CHECK_VALUE(eps >= 1e-18 && eps <= 1e18, op, ": eps must be between 1e-18 and 1e18, got ", eps);
}

void check_box_pair(const char* op, const Tensor& boxes1, const Tensor& boxes2) {
  check_box_dtype(op, "boxes1", boxes1);
  check_box_dtype(op, "boxes2", boxes2);
  check_last_dimension(op, "boxes1", boxes1);
  check_last_dimension(op, "boxes2", boxes2);
  check_same_device(op, "boxes2", boxes2, "boxes1", boxes1);
}

void check_box_matrices(const char* op, const Tensor& boxes1, const Tensor& boxes2) {
  check_box_pair(op, boxes1, boxes2);
  TORCH_CHECK(boxes1.dim() >= 2, op, ": boxes1 must have shape [..., N, 4], got ", boxes1.sym_sizes());
  TORCH_CHECK(boxes2.dim() >= 2, op, ": boxes2 must have shape [..., M, 4], got ", boxes2.sym_sizes());
}

void check_loss_arguments(const char* op, const Tensor& pred, const Tensor& target,
                          const std::optional<Tensor>& weight, double eps) {
  check_floating_dtype(op, "pred", pred);
  check_box_dtype(op, "target", target);
  check_last_dimension(op, "pred", pred);
  TORCH_CHECK(target.sym_sizes() == pred.sym_sizes(), op, ": target must have the shape of pred (",
              pred.sym_sizes(), "), got ", target.sym_sizes());
  check_same_device(op, "target", target, "pred", pred);
  if (weight.has_value()) {
    TORCH_CHECK_TYPE(is_box_dtype(weight->scalar_type()) || weight->scalar_type() == ScalarType::Bool, op,
                     ": weight must be a floating-point, integer or bool tensor, got ",
                     weight->scalar_type());
    TORCH_CHECK(weight->sym_sizes() == pred.sym_sizes().slice(0, pred.dim() - 1), op,
                ": weight must have the shape of pred without its last dimension (pred: ", pred.sym_sizes(),
                "), got ", weight->sym_sizes());
    check_same_device(op, "weight", *weight, "pred", pred);
  }
  check_eps(op, eps);
}

void check_jagged_arguments(const char* op, const Tensor& pred, const Tensor& targets, const Tensor& offsets,
                            double eps) {
  check_floating_dtype(op, "pred", pred);
  check_box_dtype(op, "targets", targets);
  TORCH_CHECK_TYPE(offsets.scalar_type() == ScalarType::Long || offsets.scalar_type() == ScalarType::Int, op,
                   ": offsets must be int64 or int32, got ", offsets.scalar_type());
  TORCH_CHECK(pred.dim() == 3 && pred.sym_size(2) == 4, op, ": pred must have shape [B, M, 4] (xyxy), got ",
              pred.sym_sizes());
  TORCH_CHECK(targets.dim() == 2 && targets.sym_size(1) == 4, op,
              ": targets must have shape [N, 4] (xyxy), got ", targets.sym_sizes());
  TORCH_CHECK(offsets.dim() == 1 && offsets.sym_size(0) == pred.sym_size(0) + 1, op,
              ": offsets must have shape [B + 1] for pred of shape [B, M, 4] (", pred.sym_sizes(), "), got ",
              offsets.sym_sizes());
  check_same_device(op, "targets", targets, "pred", pred);
  check_same_device(op, "offsets", offsets, "pred", pred);
  check_eps(op, eps);
}

void check_nms_arguments(const Tensor& boxes, const Tensor& scores, double iou_threshold,
                         double score_threshold, const c10::SymInt& max_candidates,
                         const c10::SymInt& max_detections, const std::optional<Tensor>& categories) {
  constexpr const char* op = "lensbox::padded_nms";
  check_floating_dtype(op, "boxes", boxes);
  check_floating_dtype(op, "scores", scores);
  TORCH_CHECK(boxes.dim() == 3 && boxes.sym_size(2) == 4, op,
              ": boxes must have shape [B, N, 4] (xyxy), got ", boxes.sym_sizes());
  TORCH_CHECK(
      scores.dim() == 2 && scores.sym_size(0) == boxes.sym_size(0) && scores.sym_size(1) == boxes.sym_size(1),
      op, ": scores must have shape [B, N] = [", boxes.sym_size(0), ", ", boxes.sym_size(1), "], got ",
      scores.sym_sizes());
  check_same_device(op, "scores", scores, "boxes", boxes);
  if (categories.has_value()) {
    TORCH_CHECK_TYPE(categories->scalar_type() == ScalarType::Long, op, ": categories must be int64, got ",
                     categories->scalar_type());
    TORCH_CHECK(categories->sym_sizes() == scores.sym_sizes(), op,
                ": categories must have the shape of scores (", scores.sym_sizes(), "), got ",
                categories->sym_sizes());
    check_same_device(op, "categories", *categories, "boxes", boxes);
  }
  TORCH_CHECK_VALUE(iou_threshold >= 0 && iou_threshold <= 1, op,
                    ": iou_threshold must be between 0 and 1, got ", iou_threshold);
  TORCH_CHECK_VALUE(score_threshold == score_threshold, op, ": score_threshold must be a number, got NaN");
  TORCH_CHECK_VALUE(max_candidates >= 1, op, ": max_candidates must be at least 1, got ", max_candidates);
  TORCH_CHECK_VALUE(max_detections >= 1, op, ": max_detections must be at least 1, got ", max_detections);
}

void check_threshold_tensor(const char* name, const Tensor& threshold) {
  constexpr const char* op = "lensbox::padded_nms";
  check_floating_dtype(op, name, threshold);
  TORCH_CHECK_VALUE(threshold.dim() == 0, op, ": ", name, " must have shape [], got ", threshold.sym_sizes());
}

namespace {

constexpr const char* op = "lensbox::fit";

void check_canvas_arguments(at::TensorList images, int64_t height, int64_t width, int64_t fill) {
  // float32 holds all positions of pixels exactly up to this side.
  constexpr int64_t kLongestSide = int64_t{1} << 24;
  TORCH_CHECK_VALUE(!images.empty(), op, ": images must hold at least one image, got none");
  for (size_t i = 0; i < images.size(); ++i) {
    const Tensor& image = images[i];
    const std::string name = "images[" + std::to_string(i) + "]";
    TORCH_CHECK_TYPE(image.scalar_type() == ScalarType::Byte, op, ": ", name, " must be uint8, got ",
                     image.scalar_type());
    TORCH_CHECK_VALUE(
        image.dim() == 3 && (image.sym_size(0) == 1 || image.sym_size(0) == 3 || image.sym_size(0) == 4), op,
        ": ", name, " must have the shape [C, H, W] with C = 1, 3 or 4, got ", image.sym_sizes());
    TORCH_CHECK_VALUE(image.sym_size(1) >= 1 && image.sym_size(2) >= 1, op, ": ", name,
                      " must have at least one row and one column, got ", image.sym_sizes());
    TORCH_CHECK_VALUE(image.sym_size(1) <= kLongestSide && image.sym_size(2) <= kLongestSide, op, ": ", name,
                      " must have sides of at most ", kLongestSide, " pixels, got ", image.sym_sizes());
    check_same_device(op, name.c_str(), image, "images[0]", images[0]);
  }
  constexpr int64_t kLongestCanvas = 1 << 14;
  TORCH_CHECK_VALUE(height >= 1 && height <= kLongestCanvas, op, ": height must be between 1 and ",
                    kLongestCanvas, ", got ", height);
  TORCH_CHECK_VALUE(width >= 1 && width <= kLongestCanvas, op, ": width must be between 1 and ",
                    kLongestCanvas, ", got ", width);
  TORCH_CHECK_VALUE(fill >= 0 && fill <= 255, op, ": fill must be between 0 and 255, got ", fill);
}

// Return the value that belongs to a word of `fit`.
template <typename Value, size_t kCount>
Value value_of(const char* name, std::string_view word,
               const std::pair<std::string_view, Value> (&words)[kCount]) {
  std::string known;
  for (const auto& [candidate, value] : words) {
    if (candidate == word) return value;
    known += (known.empty() ? "" : ", ") + std::string(candidate);
  }
  TORCH_CHECK_VALUE(false, "lensbox::fit: ", name, " must be one of ", known, ", got ", word);
}

// Return one number for each channel; `other` if none are given.
std::array<float, 3> numbers_of_channels(const char* name, std::optional<at::ArrayRef<double>> numbers,
                                         int64_t channels, float other) {
  std::array<float, 3> found = {other, other, other};
  if (!numbers.has_value()) return found;
  TORCH_CHECK_VALUE(static_cast<int64_t>(numbers->size()) == channels, "lensbox::fit: ", name, " must hold ",
                    channels, " numbers, one for each channel, got ", *numbers);
  for (size_t i = 0; i < numbers->size(); ++i) {
    found[i] = static_cast<float>((*numbers)[i]);
    TORCH_CHECK_VALUE(std::isfinite(found[i]), "lensbox::fit: ", name, " must be finite in float32, got ",
                      *numbers);
  }
  return found;
}

}  // namespace

FitOptions check_fit_arguments(at::TensorList images, int64_t height, int64_t width, std::string_view fit,
                               std::string_view filter, std::string_view order, int64_t fill,
                               std::optional<at::ArrayRef<double>> mean,
                               std::optional<at::ArrayRef<double>> deviation,
                               std::optional<ScalarType> dtype) {
  check_canvas_arguments(images, height, width, fill);
  FitOptions options = {};
  options.mode = value_of<FitMode>(
      "fit", fit,
      {{"letterbox", FitMode::kLetterbox}, {"stretch", FitMode::kStretch}, {"crop", FitMode::kCrop}});
  options.filter = value_of<Filter>("filter", filter,
                                    {{"nearest", Filter::kNearest},
                                     {"box", Filter::kBox},
                                     {"bilinear", Filter::kBilinear},
                                     {"hamming", Filter::kHamming},
                                     {"bicubic", Filter::kBicubic},
                                     {"lanczos", Filter::kLanczos}});
  options.channels = value_of<int64_t>("order", order, {{"gray", 1}, {"rgb", 3}, {"bgr", 3}});
  options.is_bgr = order == "bgr";
  const bool is_scaled = mean.has_value() || deviation.has_value();
  options.dtype = dtype.value_or(is_scaled ? ScalarType::Float : ScalarType::Byte);
  TORCH_CHECK_TYPE(options.dtype == ScalarType::Byte || options.dtype == ScalarType::Float ||
                       options.dtype == ScalarType::Half || options.dtype == ScalarType::BFloat16,
                   op, ": dtype must be uint8, float32, float16 or bfloat16, got ", options.dtype);
  TORCH_CHECK_VALUE(options.dtype != ScalarType::Byte || !is_scaled, op,
                    ": dtype must be floating-point where mean or std is given, got ", options.dtype);
  options.mean = numbers_of_channels("mean", mean, options.channels, 0.0f);
  options.deviation = numbers_of_channels("std", deviation, options.channels, 1.0f);
  for (float number : options.deviation)
    TORCH_CHECK_VALUE(number > 0.0f, op, ": std must be above 0, got ", number);
  return options;
}

const uint8_t* bytes_of_file(const Tensor& file) {
  TORCH_CHECK_VALUE(
      file.is_cpu() && file.scalar_type() == at::kByte && file.dim() == 1 && file.is_contiguous(),
      "a file must be contiguous uint8 [N] on the CPU, got ", file.toString(), " ", file.sizes());
  return file.const_data_ptr<uint8_t>();
}

void check_grad(const char* op, const Tensor& grad, c10::SymIntArrayRef shape, const char* input_name,
                const Tensor& input) {
  TORCH_CHECK_TYPE(at::isFloatingType(grad.scalar_type()), op, ": grad must be floating-point, got ",
                   grad.scalar_type());
  TORCH_CHECK(grad.sym_sizes() == shape, op, ": grad must have the shape of the output (", shape, "), got ",
              grad.sym_sizes());
  check_same_device(op, "grad", grad, input_name, input);
}

void check_saved(const char* op, const char* name, const Tensor& saved, ScalarType dtype,
                 const Tensor& pred) {
  TORCH_CHECK_TYPE(saved.scalar_type() == dtype, op, ": ", name, " must be ", dtype, " for pred of ",
                   pred.scalar_type(), ", got ", saved.scalar_type());
  TORCH_CHECK(saved.dim() == 0, op, ": ", name, " must have shape [], got ", saved.sym_sizes());
  check_same_device(op, name, saved, "pred", pred);
}

void check_wanted(const char* op, bool wanted, int position, const char* name, const Tensor& input) {
  TORCH_CHECK_TYPE(!wanted || at::isFloatingType(input.scalar_type()), op, ": output_mask[", position,
                   "] must be False where ", name, " holds integers, which have no gradient, got True for ",
                   input.scalar_type());
}

ScalarType math_dtype(const Tensor& a, const Tensor& b) {
  return a.scalar_type() == ScalarType::Double || b.scalar_type() == ScalarType::Double ? ScalarType::Double
                                                                                        : ScalarType::Float;
}

ScalarType giou_dtype(const Tensor& boxes1, const Tensor& boxes2) {
  const ScalarType promoted = c10::promoteTypes(boxes1.scalar_type(), boxes2.scalar_type());
  return at::isFloatingType(promoted) ? promoted : ScalarType::Float;
}

}  // namespace lensbox
