#pragma once

#include <lensbox/torch/artifact.h>

#include "commands.h"

lensbox::Trust trust(const ModelOptions& model);

// Throws ArtifactError, DeviceError.
lensbox::Artifact load(const ModelOptions& model);

// An artifact, and how detect is to be called: as the options say, else as the artifact says.
struct LoadedDetector {
  lensbox::Artifact artifact;
  lensbox::ReadOptions reading;
  double score_threshold;
  double iou_threshold;
};

// Throws ArtifactError, DeviceError.
LoadedDetector load_detector(const ModelOptions& model, const DetectOptions& options);
