// `padded_nms` with thresholds that are tensors, for graphs whose thresholds are inputs: exporters make
// constants of the numbers that an op takes. They are read on the host, so tensors on the CPU cost nothing;
// those on a GPU are waited for.

#include <torch/library.h>

#include "checks.h"
#include "ops.h"
#include "outputs.h"

namespace lensbox {
namespace {

std::tuple<Tensor, Tensor, Tensor, Tensor> padded_nms_tensor_thresholds(
    const Tensor& boxes, const Tensor& scores, const Tensor& iou_threshold, const Tensor& score_threshold,
    int64_t max_candidates, int64_t max_detections, const std::optional<Tensor>& categories) {
  check_threshold_tensor("iou_threshold", iou_threshold);
  check_threshold_tensor("score_threshold", score_threshold);
  return padded_nms(boxes, scores, iou_threshold.item<double>(), score_threshold.item<double>(),
                    max_candidates, max_detections, categories);
}

// Thresholds without values: any valid ones give outputs of these shapes.
std::tuple<Tensor, Tensor, Tensor, Tensor> padded_nms_tensor_thresholds_outputs(
    const Tensor& boxes, const Tensor& scores, const Tensor& iou_threshold, const Tensor& score_threshold,
    int64_t max_candidates, int64_t max_detections, const std::optional<Tensor>& categories) {
  check_threshold_tensor("iou_threshold", iou_threshold);
  check_threshold_tensor("score_threshold", score_threshold);
  return padded_nms_outputs(boxes, scores, 0.5, 0.5, max_candidates, max_detections, categories);
}

}  // namespace
}  // namespace lensbox

TORCH_LIBRARY_IMPL(lensbox, CPU, m) {
  m.impl("padded_nms.tensor_thresholds", lensbox::padded_nms_tensor_thresholds);
}

TORCH_LIBRARY_IMPL(lensbox, CUDA, m) {
  m.impl("padded_nms.tensor_thresholds", lensbox::padded_nms_tensor_thresholds);
}

TORCH_LIBRARY_IMPL(lensbox, Meta, m) {
  m.impl("padded_nms.tensor_thresholds", lensbox::padded_nms_tensor_thresholds_outputs);
}
