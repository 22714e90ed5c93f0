#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <vector>

#include "model/detector_module.h"

namespace lensbox {

// CUDA graphs of the method detect, one for each batch size. Thread-safe.
class DetectGraphs {
 public:
  virtual ~DetectGraphs() = default;

  // Run detect with the graph of the next larger batch size. Return nothing if no graph fits the batch
  // size, the canvases or the thresholds.
  virtual std::optional<Found> run(const at::Tensor& canvases, double score_threshold,
                                   double iou_threshold) = 0;
};

// Record the graphs for canvases like `canvas`, [1, c, h, w] on a GPU, and for these thresholds. Throws
// DeviceError in a library that was built without CUDA, ArtifactError.
std::unique_ptr<DetectGraphs> record_graphs(const DetectorModule& module, const at::Tensor& canvas,
                                            const std::vector<int64_t>& batch_sizes, double score_threshold,
                                            double iou_threshold);

}  // namespace lensbox
