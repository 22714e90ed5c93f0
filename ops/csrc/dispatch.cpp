// Kernels that belong to no backend: they call another op, or raise an error that says why no op can run.

#include "dispatch.h"

#include <torch/library.h>

#include "checks.h"
#include "outputs.h"

namespace lensbox {
namespace {

using Detections = std::tuple<Tensor, Tensor, Tensor, Tensor>;

// `padded_nms` with thresholds that are tensors, for graphs whose thresholds are inputs: exporters make
// constants of the numbers that an op takes. The host reads the thresholds, so a threshold on a GPU makes the
// host wait.
Detections padded_nms_tensor_thresholds(const Tensor& boxes, const Tensor& scores,
                                        const Tensor& iou_threshold, const Tensor& score_threshold,
                                        int64_t max_candidates, int64_t max_detections,
                                        const std::optional<Tensor>& categories) {
  check_threshold_tensor("iou_threshold", iou_threshold);
  check_threshold_tensor("score_threshold", score_threshold);
  static const auto op =
      find_op<Detections(const Tensor&, const Tensor&, double, double, c10::SymInt, c10::SymInt,
                         const std::optional<Tensor>&)>("lensbox::padded_nms");
  return op.call(boxes, scores, iou_threshold.item<double>(), score_threshold.item<double>(), max_candidates,
                 max_detections, categories);
}

// Thresholds of meta tensors have no values; any valid thresholds give outputs of these shapes.
Detections padded_nms_tensor_thresholds_outputs(const Tensor& boxes, const Tensor& scores,
                                                const Tensor& iou_threshold, const Tensor& score_threshold,
                                                c10::SymInt max_candidates, c10::SymInt max_detections,
                                                const std::optional<Tensor>& categories) {
  check_threshold_tensor("iou_threshold", iou_threshold);
  check_threshold_tensor("score_threshold", score_threshold);
  return padded_nms_outputs(boxes, scores, 0.5, 0.5, max_candidates, max_detections, categories);
}

// The dispatcher finds the backend of `fit` by its images. Without images the dispatcher would print its
// tables instead of the error. At the key BackendSelect, torch lets calls without tensors choose a backend
// (for example torch.empty). Every call passes here, and calls with images go on. (A kernel for no key at
// all, `Undefined`, would count as a definition by other ops, which torch.compile prefers to the kernels.)
template <typename... Arguments>
std::tuple<Tensor, Tensor> fit_with_images(c10::DispatchKeySet keys, at::TensorList images,
                                           Arguments... arguments) {
  TORCH_CHECK_VALUE(!images.empty(), "lensbox::fit: images must hold at least one image, got none");
  constexpr c10::DispatchKeySet below(c10::DispatchKeySet::FULL_AFTER, c10::DispatchKey::BackendSelect);
  static const auto op = find_op<std::tuple<Tensor, Tensor>(at::TensorList, Arguments...)>("lensbox::fit");
  return op.redispatch(keys & below, images, arguments...);
}

void refuse_nested_tensors(const c10::OperatorHandle& op, torch::jit::Stack* /*stack*/) {
  TORCH_CHECK_TYPE(
      false, op.schema().name(),
      ": tensors must not be nested, got a nested tensor. Pad them with torch.nested.to_padded_tensor,"
      " or use jagged_giou_loss with PackedTargets");
}

#ifndef LENSBOX_WITH_CUDA
void refuse_cuda_tensors(const c10::OperatorHandle& op, torch::jit::Stack* /*stack*/) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      false, op.schema().name(),
      ": this liblensbox_ops was built without CUDA. Build it where torch has CUDA and nvcc"
      " is on PATH, with LENSBOX_CUDA=ON.");
}
#endif

constexpr const char* kOps[] = {"giou",
                                "_giou_backward",
                                "pairwise_giou",
                                "_pairwise_giou_backward",
                                "_masked_giou_loss_forward",
                                "_masked_giou_loss_backward",
                                "masked_giou_loss_and_grad",
                                "_jagged_giou_loss_forward",
                                "_jagged_giou_loss_backward",
                                "padded_nms",
                                "fit"};

}  // namespace
}  // namespace lensbox

TORCH_LIBRARY_IMPL(lensbox, CPU, m) {
  m.impl("padded_nms.tensor_thresholds", lensbox::padded_nms_tensor_thresholds);
}

TORCH_LIBRARY_IMPL(lensbox, CUDA, m) {
  m.impl("padded_nms.tensor_thresholds", lensbox::padded_nms_tensor_thresholds);
#ifndef LENSBOX_WITH_CUDA
  for (const char* op : lensbox::kOps) {
    m.impl(op, torch::CppFunction::makeFromBoxedFunction<&lensbox::refuse_cuda_tensors>());
  }
#endif
}

// Register above the kernels for nested tensors, strided and jagged, whose messages say less.
TORCH_LIBRARY_IMPL(lensbox, AutogradNestedTensor, m) {
  for (const char* op : lensbox::kOps) {
    m.impl(op, torch::CppFunction::makeFromBoxedFunction<&lensbox::refuse_nested_tensors>());
  }
  for (const char* op : {"masked_giou_loss", "jagged_giou_loss"}) {
    m.impl(op, torch::CppFunction::makeFromBoxedFunction<&lensbox::refuse_nested_tensors>());
  }
}

TORCH_LIBRARY_IMPL(lensbox, Meta, m) {
  m.impl("padded_nms.tensor_thresholds", lensbox::padded_nms_tensor_thresholds_outputs);
}

TORCH_LIBRARY_IMPL(lensbox, BackendSelect, m) {
  using lensbox::fit_with_images;
  using Numbers = std::optional<at::ArrayRef<double>>;
  m.impl("fit", fit_with_images<int64_t, int64_t, std::string_view, std::string_view, std::string_view,
                                int64_t, Numbers, Numbers, std::optional<at::ScalarType>>);
}
