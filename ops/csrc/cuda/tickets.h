#pragma once

#include <ATen/core/Tensor.h>
#include <c10/cuda/CUDAStream.h>

namespace lensbox {

// A counter that holds 0 and that no launch running at the same time shares.
struct Ticket {
  unsigned int* counter;
  at::Tensor owner;  // keeps the counter's memory where it does not come from the pool
};

Ticket take_ticket(c10::cuda::CUDAStream stream);

}  // namespace lensbox
