#include "loss_workspace.h"

#include <ATen/ops/empty.h>

#include "launch.h"

namespace lensbox {

LossWorkspace make_loss_workspace(const at::TensorOptions& options, c10::cuda::CUDAStream stream) {
  return {at::empty({2 * int64_t{loss_max_blocks()}}, options.dtype(at::kDouble)), take_ticket(stream)};
}

}  // namespace lensbox
