#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

#include "padded_nms_problem.h"

namespace lensbox {

// The overlaps of all pairs are kept as bits: 2^17 candidates take 2 GiB an image.
constexpr int64_t kMaxCandidates = int64_t{1} << 17;

// Bytes of workspace, 256-byte aligned, in any state.
size_t padded_nms_large_workspace(const NmsProblem& problem);

// For any number of candidates up to kMaxCandidates: a fixed number of launches, and two more for each
// further slice of images where the overlap bits of all images would take more than 1 GiB.
cudaError_t launch_padded_nms_large(const NmsProblem& problem, void* workspace, cudaStream_t stream);

}  // namespace lensbox
