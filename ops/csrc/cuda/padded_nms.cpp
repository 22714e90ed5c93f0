#include <ATen/ops/empty.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/library.h>

#include <algorithm>
#include <limits>

#include "../outputs.h"
#include "../slots.h"
#include "launchers.h"

namespace lensbox {
namespace {

std::tuple<Tensor, Tensor, Tensor, Tensor> padded_nms_cuda(const Tensor& boxes, const Tensor& scores,
                                                           double iou_threshold, double score_threshold,
                                                           int64_t max_candidates, int64_t max_detections,
                                                           const std::optional<Tensor>& categories) {
  const c10::cuda::CUDAGuard device(boxes.device());
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
                              out_indices.data_ptr<int64_t>(),
                              out_counts.data_ptr<int32_t>()};
  TORCH_CHECK_VALUE(boxes.size(0) * boxes.size(1) <= std::numeric_limits<int32_t>::max(),
                    "lensbox::padded_nms: boxes must hold fewer than 2^31 boxes, got ", boxes.sizes());
  const c10::cuda::CUDAStream stream = c10::cuda::getCurrentCUDAStream();
  const int64_t candidates = std::min(boxes.size(1), max_candidates);
  if (candidates <= kMaxBlockCandidates) {
    if (problem.batch <= kMaxTickets && padded_nms_should_split(problem)) {
      const int64_t words = padded_nms_split_words(problem);
      const Tensor workspace = at::empty({words + kMaxTickets}, boxes.options().dtype(at::kInt));
      auto* const memory = reinterpret_cast<unsigned int*>(workspace.data_ptr<int32_t>());
      unsigned int* tickets = nullptr;
      C10_CUDA_CHECK(take_tickets(stream, memory + words, &tickets));
      C10_CUDA_CHECK(launch_padded_nms_split(problem, memory, tickets, stream));
    } else {
      C10_CUDA_CHECK(launch_padded_nms(problem, stream));
    }
    return outputs;
  }
  TORCH_CHECK_VALUE(
      candidates <= kMaxCandidates, "lensbox::padded_nms: on CUDA an image may have at most ", kMaxCandidates,
      " candidates, which is the smaller of its number of boxes and"
      " max_candidates, got ",
      candidates, " for boxes of shape ", boxes.sizes(), ". Pass fewer boxes or a smaller max_candidates");
  if (problem.batch > 0) {
    const auto bytes = static_cast<int64_t>(padded_nms_large_workspace(problem));
    const Tensor workspace = at::empty({bytes}, boxes.options().dtype(at::kByte));
    C10_CUDA_CHECK(launch_padded_nms_large(problem, workspace.data_ptr(), stream));
  }
  return outputs;
}

}  // namespace
}  // namespace lensbox

TORCH_LIBRARY_IMPL(lensbox, CUDA, m) {
  m.impl("padded_nms", lensbox::padded_nms_cuda);
}
