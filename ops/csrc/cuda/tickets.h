// Counters that a launch finds at 0 and leaves at 0 (tickets.cu says which launches may use which).
#pragma once

#include <cuda_runtime_api.h>

namespace lensbox {

// The most counters that a launch can have.
constexpr unsigned int kMaxTickets = 64;

// A workspace begins with room for kMaxTickets counters; the kernel's memory follows.
constexpr size_t kSpareBytes = kMaxTickets * sizeof(unsigned int);

inline void* behind_spare(void* workspace) {
  return workspace != nullptr ? static_cast<char*>(workspace) + kSpareBytes : nullptr;
}

// Give `tickets` kMaxTickets counters on the current device that hold 0 and that no launch running at the
// same time shares. A launch on `stream` leaves them at 0. `spare` is a workspace, or nullptr for a launch
// that takes no ticket; its counters are zeroed, by one more launch, should all others be taken.
cudaError_t take_tickets(cudaStream_t stream, void* spare, unsigned int** tickets);

}  // namespace lensbox
