#include <torch/library.h>

#include <algorithm>
#include <limits>

#include "../backends.h"
#include "../outputs.h"
#include "../slots.h"

namespace lensbox {
namespace {

void check_cuda_limits(const Tensor& boxes, int64_t max_candidates) {
  TORCH_CHECK_VALUE(boxes.size(0) * boxes.size(1) <= std::numeric_limits<int32_t>::max(),
                    "lensbox::padded_nms: boxes must hold fewer than 2^31 boxes, got ", boxes.sizes());
  const int64_t candidates = std::min(boxes.size(1), max_candidates);
  TORCH_CHECK_VALUE(
      candidates <= kMaxCandidates, "lensbox::padded_nms: on CUDA an image may have at most ", kMaxCandidates,
      " candidates, which is the smaller of its number of boxes and"
      " max_candidates, got ",
      candidates, " for boxes of shape ", boxes.sizes(), ". Pass fewer boxes or a smaller max_candidates");
}

template <typename Backend>
std::tuple<Tensor, Tensor, Tensor, Tensor> padded_nms(const Tensor& boxes, const Tensor& scores,
                                                      double iou_threshold, double score_threshold,
                                                      int64_t max_candidates, int64_t max_detections,
                                                      const std::optional<Tensor>& categories) {
  const Backend backend(boxes);
  const auto outputs = padded_nms_outputs(boxes, scores, iou_threshold, score_threshold, max_candidates,
                                          max_detections, categories);
  const auto& [out_boxes, out_scores, out_indices, out_counts] = outputs;
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
                              out_indices.template data_ptr<int64_t>(),
                              out_counts.template data_ptr<int32_t>()};
  if constexpr (Backend::kIsCuda) check_cuda_limits(boxes, max_candidates);
  backend.run_with_workspace(Backend::padded_nms_workspace(problem), Backend::padded_nms, problem);
  return outputs;
}

template <typename Backend>
void register_padded_nms(torch::Library& m) {
  m.impl("padded_nms", padded_nms<Backend>);
}

}  // namespace
}  // namespace lensbox

LENSBOX_BINDINGS(register_padded_nms)
