#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "padded_nms_problem.h"

namespace lensbox {

// With fewer threads an image, the overlaps take less time than the blocks' meeting.
constexpr int kLeastSplitThreads = 128;

// Whether the images are few enough for several blocks each. Needs min(per_image, max_candidates) <=
// kMaxBlockCandidates, as launch_padded_nms() does.
bool padded_nms_should_split(const NmsProblem& problem);

// Words of workspace, in any state.
int64_t padded_nms_split_words(const NmsProblem& problem);

// One launch. `tickets`: a counter for each image, 0 and so again when the launch is over.
cudaError_t launch_padded_nms_split(const NmsProblem& problem, unsigned int* workspace, unsigned int* tickets,
                                    cudaStream_t stream);

}  // namespace lensbox
