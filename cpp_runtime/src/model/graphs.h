#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <optional>
#include <vector>

#include "model/detector_module.h"

namespace lensbox {

// Run detect with the CUDA graph of the next larger batch size. Return nothing if no graph fits the batch
// size, the canvases or the thresholds. Thread-safe.
using DetectGraphs = std::function<std::optional<Found>(const at::Tensor& canvases, double score_threshold,
                                                        double iou_threshold)>;

// Record the graphs for canvases like `canvas`, [1, c, h, w] on a GPU, and for these thresholds. Throws
// DeviceError in a library that was built without CUDA, ArtifactError.
DetectGraphs record_graphs(const DetectorModule& module, const at::Tensor& canvas,
                           const std::vector<int64_t>& batch_sizes, double score_threshold,
                           double iou_threshold);

}  // namespace lensbox
