#include "model.h"

#include <lensbox/torch/device.h>

lensbox::Trust trust(const ModelOptions& model) {
  return model.trusted ? lensbox::Trust::kTrustCode : lensbox::Trust::kCheckCode;
}

lensbox::Artifact load(const ModelOptions& model) {
  return lensbox::Artifact::load(model.artifact, lensbox::parse_device(model.device), model.op_library,
                                 trust(model), model.public_key);
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
