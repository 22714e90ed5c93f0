// Launcher of `letterbox`: raw memory and a stream, no ATen.
#pragma once

#include <cuda_runtime_api.h>

#include "../letterbox_problem.h"

namespace lensbox {

// Writes canvas and geometry of each of `count` images, whose memory is on the current device. One launch for
// every few hundred of them.
cudaError_t launch_letterbox(const ImageView* images, int64_t count, const Canvases& out,
                             cudaStream_t stream);

}  // namespace lensbox
