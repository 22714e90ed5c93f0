#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <vector>

#include "model/detector_module.h"

namespace lensbox {

// CUDA graphs of the method detect, one a batch size. May be used by several threads at once.
class DetectGraphs {
 public:
  virtual ~DetectGraphs() = default;

  // Run detect on canvases [b, c, h, w] with the graph for `batch_size`, at least b.
  virtual Found replay(int64_t batch_size, const at::Tensor& canvases) = 0;
};

// Record a graph for each batch size, for canvases like `canvas`, [1, c, h, w] on a GPU, and these
// thresholds. Throws DeviceError in a library that was built without CUDA, ArtifactError.
std::unique_ptr<DetectGraphs> record_detect_graphs(const DetectorModule& module, const at::Tensor& canvas,
                                                   const std::vector<int64_t>& batch_sizes,
                                                   double score_threshold, double iou_threshold);

// Graphs, and which batches they are for.
class CapturedDetect {
 public:
  CapturedDetect(std::vector<int64_t> batch_sizes, double score_threshold, double iou_threshold,
                 at::Tensor canvas, std::unique_ptr<DetectGraphs> graphs);

  // Return nothing if there is no graph for so large a batch, such canvases, or these thresholds.
  std::optional<Found> run(const at::Tensor& canvases, double score_threshold, double iou_threshold) const;

 private:
  std::vector<int64_t> batch_sizes_;  // ascending
  double score_threshold_;
  double iou_threshold_;
  at::Tensor canvas_;  // [1, c, h, w]: shape, type and device of all batches
  std::unique_ptr<DetectGraphs> graphs_;
};

}  // namespace lensbox
