#pragma once

#include <lensbox/torch/tensors.h>

#include <vector>

namespace lensbox {

// Run the self-test stored in the artifact: detection in a small image and the loss of a few boxes. Throws
// ArtifactError if it cannot be run.
SelfTestReport run_self_test(const Detector& detector);

// Compare results with the stored ones: detections as sets, by the rule of docs/artifact.md, "The self-test".
SelfTestReport compare_with_stored(const Metadata& metadata, const std::vector<Detection>& detections,
                                   double loss, bool on_cpu);

}  // namespace lensbox
