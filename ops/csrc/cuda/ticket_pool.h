// Zeroed counters with which the last block of a launch finds out that it is the last.
#pragma once

#include <cuda_runtime_api.h>

namespace lensbox {

constexpr unsigned int kTicketPoolSize = 1u << 16;

// The address of the current device's pool: kTicketPoolSize counters, all 0 while no launch uses them.
cudaError_t ticket_pool(unsigned int** pool);

}  // namespace lensbox
