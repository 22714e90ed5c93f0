#include "loss_workspace.h"

#include <c10/cuda/CUDACachingAllocator.h>

#include "launch.h"

namespace lensbox {

LossWorkspace make_loss_workspace(c10::cuda::CUDAStream stream) {
  const size_t bytes = 2 * sizeof(double) * static_cast<size_t>(loss_max_blocks());
  return {c10::cuda::CUDACachingAllocator::get()->allocate(bytes), take_tickets(stream, 1)};
}

}  // namespace lensbox
