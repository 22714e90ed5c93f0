#pragma once

#include <c10/core/Device.h>
#include <lensbox/detection.h>
#include <lensbox/torch/metadata.h>
#include <lensbox/torch/photo.h>

#include <vector>

#include "detector_module.h"

namespace lensbox {

// The steps around the method detect, for a batch of photographs and for artifacts of every format.

// Canvases and geometry, on `device`. Throws InputError for a photograph that breaks the rules,
// ArtifactError.
Prepared prepare(const DetectorModule& module, const Metadata& metadata, c10::Device device,
                 const std::vector<Photo>& photos);

// What was found in the canvases, in pixels of the photographs. Throws ArtifactError.
Found restore(const DetectorModule& module, const Metadata& metadata, const Found& found,
              const at::Tensor& geometry);

// The detections of each photograph, after one copy to the CPU, and one more for extras. Throws ArtifactError
// for counts that are none and for labels that name no class.
std::vector<std::vector<Detection>> collect(const DetectorModule& module, const Found& found);

}  // namespace lensbox
