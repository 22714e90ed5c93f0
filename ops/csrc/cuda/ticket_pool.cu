#include "ticket_pool.h"

namespace lensbox {

// Loading the module zeroes this, so no call ever needs a memset; each launch leaves its own at 0 again
// (the increment wraps). Who may use which when is settled in tickets.cpp.
__device__ unsigned int tickets[kTicketPoolSize];

cudaError_t ticket_pool(unsigned int** pool) {
  return cudaGetSymbolAddress(reinterpret_cast<void**>(pool), tickets);
}

}  // namespace lensbox
