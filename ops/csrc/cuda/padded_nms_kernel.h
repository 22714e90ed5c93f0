#pragma once

#include <cuda_runtime_api.h>

#include "padded_nms_problem.h"

namespace lensbox {

// One block handles an image, so an image has at most this many candidates here.
constexpr int64_t kMaxBlockCandidates = 1024;

// One launch. Needs min(per_image, max_candidates) <= kMaxBlockCandidates.
cudaError_t launch_padded_nms(const NmsProblem& problem, cudaStream_t stream);

}  // namespace lensbox
