// `padded_nms`, also with thresholds that are tensors.

#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <algorithm>
#include <limits>

#include "../backends.h"
#include "../checks.h"
#include "../dispatch.h"
#include "../slots.h"

namespace lensbox {
namespace {

using Detections = std::tuple<Tensor, Tensor, Tensor, Tensor>;

constexpr const char* kPaddedNms = "lensbox::padded_nms";

// The limits of the CUDA kernels hold on every device: a detector that passes on a CPU runs on a GPU. A size
// that a tracer leaves open is checked when the kernel is called.
void check_limits(const Tensor& boxes, const c10::SymInt& max_candidates) {
  const auto images = boxes.sym_size(0).maybe_as_int(), per_image = boxes.sym_size(1).maybe_as_int();
  if (!per_image.has_value()) return;
  const int64_t candidates = std::min(*per_image, max_candidates.maybe_as_int().value_or(*per_image));
  TORCH_CHECK_VALUE(candidates <= kMaxCandidates, kPaddedNms, ": an image may have at most ", kMaxCandidates,
                    " candidates, which is the smaller of its number of boxes and max_candidates, got ",
                    candidates, " for boxes of shape ", boxes.sym_sizes(),
                    ". Pass fewer boxes or a smaller max_candidates");
  constexpr int64_t kMostBoxes = std::numeric_limits<int32_t>::max();
  TORCH_CHECK_VALUE(images.value_or(0) == 0 || *per_image <= kMostBoxes / *images, kPaddedNms,
                    ": boxes must hold fewer than 2^31 boxes, got ", boxes.sym_sizes());
}

void check_nms_arguments(const Tensor& boxes, const Tensor& scores, double iou_threshold,
                         double score_threshold, const c10::SymInt& max_candidates,
                         const c10::SymInt& max_detections, const std::optional<Tensor>& categories) {
  check_floating_dtype(kPaddedNms, "boxes", boxes);
  check_floating_dtype(kPaddedNms, "scores", scores);
  TORCH_CHECK(boxes.dim() == 3 && boxes.sym_size(2) == 4, kPaddedNms,
              ": boxes must have shape [B, N, 4] (xyxy), got ", boxes.sym_sizes());
  TORCH_CHECK(
      scores.dim() == 2 && scores.sym_size(0) == boxes.sym_size(0) && scores.sym_size(1) == boxes.sym_size(1),
      kPaddedNms, ": scores must have shape [B, N] = [", boxes.sym_size(0), ", ", boxes.sym_size(1),
      "], got ", scores.sym_sizes());
  check_same_device(kPaddedNms, "scores", scores, "boxes", boxes);
  if (categories.has_value()) {
    TORCH_CHECK_TYPE(categories->scalar_type() == at::kLong, kPaddedNms, ": categories must be int64, got ",
                     categories->scalar_type());
    TORCH_CHECK(categories->sym_sizes() == scores.sym_sizes(), kPaddedNms,
                ": categories must have the shape of scores (", scores.sym_sizes(), "), got ",
                categories->sym_sizes());
    check_same_device(kPaddedNms, "categories", *categories, "boxes", boxes);
  }
  TORCH_CHECK_VALUE(iou_threshold >= 0 && iou_threshold <= 1, kPaddedNms,
                    ": iou_threshold must be between 0 and 1, got ", iou_threshold);
  TORCH_CHECK_VALUE(score_threshold == score_threshold, kPaddedNms,
                    ": score_threshold must be a number, got NaN");
  TORCH_CHECK_VALUE(max_candidates >= 1, kPaddedNms, ": max_candidates must be at least 1, got ",
                    max_candidates);
  TORCH_CHECK_VALUE(max_detections >= 1, kPaddedNms, ": max_detections must be at least 1, got ",
                    max_detections);
  check_limits(boxes, max_candidates);
}

void check_threshold_tensor(const char* name, const Tensor& threshold) {
  check_floating_dtype(kPaddedNms, name, threshold);
  TORCH_CHECK_VALUE(threshold.dim() == 0, kPaddedNms, ": ", name, " must have shape [], got ",
                    threshold.sym_sizes());
}

template <typename Backend>
Detections padded_nms(const Tensor& boxes, const Tensor& scores, double iou_threshold, double score_threshold,
                      typename Backend::Size max_candidates, typename Backend::Size max_detections,
                      const std::optional<Tensor>& categories) {
  const Backend backend(boxes);
  check_nms_arguments(boxes, scores, iou_threshold, score_threshold, max_candidates, max_detections,
                      categories);
  const c10::SymInt batch = boxes.sym_size(0), slots = max_detections;
  const Tensor out_boxes = at::empty_symint({batch, slots, 4}, boxes.options());
  const Tensor out_scores = at::empty_symint({batch, slots}, scores.options());
  const Tensor out_indices = at::empty_symint({batch, slots}, boxes.options().dtype(at::kLong));
  const Tensor out_counts = at::empty_symint({batch}, boxes.options().dtype(at::kInt));
  if constexpr (Backend::kHasKernels) {
    const NmsProblem problem = {box_slots(boxes),
                                number_slots(scores),
                                categories.has_value() ? number_slots(*categories) : SlotView{},
                                categories.has_value(),
                                boxes.size(0),
                                boxes.size(1),
                                iou_threshold,
                                score_threshold,
                                max_candidates,
                                max_detections,
                                box_slots(out_boxes),
                                number_slots(out_scores),
                                out_indices.mutable_data_ptr<int64_t>(),
                                out_counts.mutable_data_ptr<int32_t>()};
    backend.run_with_workspace(Backend::padded_nms_workspace(problem), Backend::padded_nms, problem);
  }
  return {out_boxes, out_scores, out_indices, out_counts};
}

// For graphs whose thresholds are inputs: exporters make constants of the numbers that an op takes. The host
// reads the thresholds, so a threshold on a GPU makes the host wait.
template <typename Backend>
Detections with_tensor_thresholds(const Tensor& boxes, const Tensor& scores, const Tensor& iou_threshold,
                                  const Tensor& score_threshold, typename Backend::Size max_candidates,
                                  typename Backend::Size max_detections,
                                  const std::optional<Tensor>& categories) {
  check_threshold_tensor("iou_threshold", iou_threshold);
  check_threshold_tensor("score_threshold", score_threshold);
  if constexpr (Backend::kHasKernels) {
    static const auto nms = find_op<Detections(const Tensor&, const Tensor&, double, double, c10::SymInt,
                                               c10::SymInt, const std::optional<Tensor>&)>(kPaddedNms);
    return nms.call(boxes, scores, iou_threshold.item<double>(), score_threshold.item<double>(),
                    max_candidates, max_detections, categories);
  } else {
    // Thresholds of meta tensors have no values; any valid thresholds give outputs of these shapes. Boxes
    // with values would get outputs that no kernel writes.
    TORCH_CHECK_VALUE(boxes.is_meta(), kPaddedNms, ": thresholds must have values for boxes on ",
                      boxes.device(), ", got a tensor on meta");
    return padded_nms<Backend>(boxes, scores, 0.5, 0.5, max_candidates, max_detections, categories);
  }
}

template <typename Backend>
void register_padded_nms(torch::Library& m) {
  m.impl("padded_nms", padded_nms<Backend>);
  m.impl("padded_nms.tensor_thresholds", with_tensor_thresholds<Backend>);
}

}  // namespace
}  // namespace lensbox

LENSBOX_BINDINGS(register_padded_nms)
