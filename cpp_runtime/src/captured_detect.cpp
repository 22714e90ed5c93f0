#include "captured_detect.h"

#include <algorithm>
#include <utility>

namespace lensbox {

CapturedDetect::CapturedDetect(std::vector<int64_t> batch_sizes, double score_threshold, double iou_threshold,
                               at::Tensor canvas, std::unique_ptr<DetectGraphs> graphs)
    : batch_sizes_(std::move(batch_sizes)),
      score_threshold_(score_threshold),
      iou_threshold_(iou_threshold),
      canvas_(std::move(canvas)),
      graphs_(std::move(graphs)) {
  std::ranges::sort(batch_sizes_);
}

std::optional<Found> CapturedDetect::run(const at::Tensor& canvases, double score_threshold,
                                         double iou_threshold) const {
  const auto size = std::ranges::lower_bound(batch_sizes_, canvases.size(0));
  const bool is_alike = canvases.sizes().slice(1) == canvas_.sizes().slice(1) &&
                        canvases.scalar_type() == canvas_.scalar_type() &&
                        canvases.device() == canvas_.device();
  const bool same_thresholds = score_threshold == score_threshold_ && iou_threshold == iou_threshold_;
  if (size == batch_sizes_.end() || !is_alike || !same_thresholds) return std::nullopt;
  return graphs_->replay(*size, canvases);
}

}  // namespace lensbox
