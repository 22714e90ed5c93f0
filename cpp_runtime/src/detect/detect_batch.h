#pragma once

#include <c10/core/Device.h>
#include <lensbox/torch/tensors.h>

#include <vector>

#include "model/detector_module.h"

namespace lensbox {

// The steps around the method detect, for a batch of photographs.

// Return canvases and geometry on `device`. Throws InputError for a photograph that breaks the rules of
// Photo, ArtifactError.
Prepared prepare(const DetectorModule& module, c10::Device device, const std::vector<Photo>& photos);

// Take detections in canvases to pixels of the photographs. Throws ArtifactError.
Found restore(const DetectorModule& module, const Found& found, const at::Tensor& geometry);

// Return the detections of each photograph, after one copy to the CPU, and one more for extras. Throws
// ArtifactError for counts outside of the slots and for labels without a class.
std::vector<std::vector<Detection>> collect(const DetectorModule& module, const Found& found);

}  // namespace lensbox
