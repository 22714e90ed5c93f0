// What a forward launch of a loss needs beside its inputs.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/cuda/CUDAStream.h>

#include "tickets.h"

namespace lensbox {

// Empty for a launch of one block.
struct LossWorkspace {
  c10::DataPtr memory;  // from torch's allocator; a tensor would take longer to make
  Tickets ticket;

  // Two for each block.
  double* sums() const { return static_cast<double*>(memory.get()); }
};

// On the current device, for a launch of at most so many threads that have work, on its current stream, which
// is `stream`.
LossWorkspace make_loss_workspace(c10::cuda::CUDAStream stream, int64_t threads);

}  // namespace lensbox
