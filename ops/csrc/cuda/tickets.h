#pragma once

#include <ATen/core/Tensor.h>
#include <c10/cuda/CUDAStream.h>

namespace lensbox {

// Counters that hold 0 and that no launch running at the same time shares.
struct Tickets {
  unsigned int* counters;
  at::Tensor owner;  // keeps the memory of counters that do not come from the pool
};

// The most counters that a launch can have.
constexpr unsigned int kMaxTickets = 32;

Tickets take_tickets(c10::cuda::CUDAStream stream, unsigned int count);

}  // namespace lensbox
