// What a forward launch of a loss needs beside its inputs.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/cuda/CUDAStream.h>

#include "tickets.h"

namespace lensbox {

struct LossWorkspace {
  at::Tensor sums;  // two doubles for each block that a launch may have
  Ticket ticket;
};

LossWorkspace make_loss_workspace(const at::TensorOptions& options, c10::cuda::CUDAStream stream);

}  // namespace lensbox
