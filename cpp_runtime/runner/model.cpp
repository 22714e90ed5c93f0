#include "model.h"

#include <lensbox/torch/device.h>
#include <lensbox/torch/op_library.h>

#include <filesystem>
#include <optional>
#include <vector>

lensbox::Trust trust(const ModelOptions& model) {
  return model.trusted ? lensbox::Trust::kTrustCode : lensbox::Trust::kCheckCode;
}

lensbox::Artifact load(const ModelOptions& model) {
  const c10::Device device = lensbox::parse_device(model.device);
  const std::vector<std::filesystem::path>& libraries = model.op_libraries;
  std::optional<std::filesystem::path> first;  // which Artifact::load opens
  if (!libraries.empty()) first = libraries[0];
  for (size_t i = 1; i < libraries.size(); ++i) {
    lensbox::load_op_library(libraries[i]);
  }
  return lensbox::Artifact::load(model.artifact, device, first, trust(model), model.public_key);
}

LoadedDetector load_detector(const ModelOptions& model, const DetectOptions& options) {
  lensbox::Artifact artifact = load(model);
  const lensbox::Metadata& metadata = artifact.metadata();
  lensbox::ReadOptions reading = metadata.reading;
  reading.reading.orientation = options.orientation.value_or(reading.reading.orientation);
  const double score_threshold = options.score_threshold.value_or(metadata.score_threshold);
  const double iou_threshold = options.iou_threshold.value_or(metadata.iou_threshold);
  if (options.capture) {
    artifact.capture({static_cast<int64_t>(options.batch)}, score_threshold, iou_threshold);
  }
  return {std::move(artifact), reading, score_threshold, iou_threshold};
}
