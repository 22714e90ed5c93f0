#include "tickets.h"

#include <ATen/ops/zeros.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGraphsC10Utils.h>

#include <map>
#include <mutex>
#include <utility>

#include "ticket_pool.h"

namespace lensbox {
namespace {

// One device's tickets.
struct Pool {
  unsigned int* counters = nullptr;
  unsigned int used = 0;
  std::map<c10::StreamId, unsigned int> of_stream;
};

}  // namespace

// Launches on one stream follow each other, so a stream keeps its counters. A captured launch may be replayed
// on any stream beside anything else, so it gets counters that are never handed out again. Should the pool
// run out, counters are allocated and zeroed for the call, which costs one more launch.
Tickets take_tickets(c10::cuda::CUDAStream stream, unsigned int count) {
  static std::mutex mutex;
  static std::map<c10::DeviceIndex, Pool> pools;
  const bool capturing = c10::cuda::currentStreamCaptureStatusMayInitCtx() != c10::cuda::CaptureStatus::None;

  const std::lock_guard<std::mutex> lock(mutex);
  Pool& pool = pools[stream.device_index()];
  if (pool.counters == nullptr) {
    // Asking for the address may load the module, which a strict capture would forbid.
    const c10::cuda::CUDAStreamCaptureModeGuard relaxed(cudaStreamCaptureModeRelaxed);
    C10_CUDA_CHECK(ticket_pool(&pool.counters));
  }
  if (!capturing) {
    const auto found = pool.of_stream.find(stream.id());
    if (found != pool.of_stream.end()) return {pool.counters + found->second, {}};
  }
  const unsigned int taken = capturing ? count : kMaxTickets;  // a stream's serve all its launches
  if (kTicketPoolSize - pool.used < taken) {
    const at::Tensor zeroed = at::zeros({count}, at::TensorOptions().dtype(at::kInt).device(stream.device()));
    return {reinterpret_cast<unsigned int*>(zeroed.data_ptr<int32_t>()), zeroed};
  }
  const unsigned int first = pool.used;
  pool.used += taken;
  if (!capturing) pool.of_stream.emplace(stream.id(), first);
  return {pool.counters + first, {}};
}

}  // namespace lensbox
