#pragma once

#include <lensbox/api.h>
#include <lensbox/self_test.h>
#include <lensbox/torch/artifact.h>

namespace lensbox {

// Runs the self-test stored in the artifact: detection in a small image and the loss of a few boxes, compared
// within the tolerance that is stored for this kind of device; labels must be equal. Throws ArtifactError if
// it cannot be run.
LENSBOX_API SelfTestReport run_self_test(const Artifact& artifact);

}  // namespace lensbox
