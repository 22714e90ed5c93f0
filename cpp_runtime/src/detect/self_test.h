#pragma once

#include <lensbox/torch/tensors.h>

namespace lensbox {

// Run the self-test stored in the artifact: detection in a small image and the loss of a few boxes, compared
// within the tolerance stored for this kind of device; labels must be equal. Throws ArtifactError if it
// cannot be run.
SelfTestReport run_self_test(const Detector& detector);

}  // namespace lensbox
