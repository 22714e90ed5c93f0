// The allocation of counters to launches. Two launches that may run at the same time never share a counter:
//
//   launches on one stream follow each other     a range of counters for each stream
//   cudaStreamPerThread is a stream per thread    a range for each thread
//   a graph may be replayed beside any launch     a range for each stream of a capture, while its graph lives

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <tuple>
#include <vector>

#include "launch.h"

namespace lensbox {
namespace {

constexpr unsigned int kRanges = 1u << 12;

// Loading the module zeroes the counters, and each launch leaves its own at 0 again (the increment wraps).
__device__ unsigned int counters[kRanges * kMaxTickets];

// The key of a range: the stream, whether it is captured, and the capture; or the thread for
// cudaStreamPerThread.
using Owner = std::tuple<cudaStream_t, bool, unsigned long long>;

// The ranges of one device.
struct Pool {
  unsigned int* counters = nullptr;
  std::vector<unsigned int> free;
  std::map<Owner, unsigned int> taken;
};

std::mutex mutex;
std::map<int, Pool>& pools = *new std::map<int, Pool>;  // never destroyed: graphs may outlive this library

struct Loan {
  int device;
  Owner owner;
};

// CUDA calls this when the graph and all its instances are gone and no replay of them is running.
void give_back(void* argument) {
  const std::unique_ptr<Loan> loan(static_cast<Loan*>(argument));
  const std::lock_guard<std::mutex> lock(mutex);
  Pool& pool = pools[loan->device];
  const auto range = pool.taken.find(loan->owner);
  pool.free.push_back(range->second);
  pool.taken.erase(range);
}

cudaError_t open_pool(Pool& pool) {
  // Asking for the address may load the module, which a strict capture would forbid.
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  cudaThreadExchangeStreamCaptureMode(&mode);
  const cudaError_t error = cudaGetSymbolAddress(reinterpret_cast<void**>(&pool.counters), counters);
  cudaThreadExchangeStreamCaptureMode(&mode);
  if (error != cudaSuccess) return error;
  pool.free.resize(kRanges);
  std::iota(pool.free.rbegin(), pool.free.rend(), 0u);
  return cudaSuccess;
}

}  // namespace

cudaError_t take_tickets(cudaStream_t stream, void* spare, unsigned int** tickets) {
  if (spare == nullptr) return cudaSuccess;
  static std::atomic<unsigned long long> threads = 0;
  thread_local const unsigned long long thread = ++threads;
  int device = 0;
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  unsigned long long capture = 0;
  cudaGraph_t graph = nullptr;
  LENSBOX_RETURN_IF_FAILED(cudaGetDevice(&device));
  LENSBOX_RETURN_IF_FAILED(cudaStreamGetCaptureInfo(stream, &status, &capture, &graph));
  const bool captured = status == cudaStreamCaptureStatusActive;
  const Owner owner = {stream, captured, captured ? capture : stream == cudaStreamPerThread ? thread : 0};
  {
    const std::lock_guard<std::mutex> lock(mutex);
    Pool& pool = pools[device];
    if (pool.counters == nullptr) LENSBOX_RETURN_IF_FAILED(open_pool(pool));
    if (const auto found = pool.taken.find(owner); found != pool.taken.end()) {
      *tickets = pool.counters + found->second * kMaxTickets;
      return cudaSuccess;
    }
    if (pool.free.empty()) {
      *tickets = static_cast<unsigned int*>(spare);
      return cudaMemsetAsync(spare, 0, kSpareBytes, stream);
    }
    *tickets = pool.counters + pool.free.back() * kMaxTickets;
    pool.taken.emplace(owner, pool.free.back());
    pool.free.pop_back();
  }
  if (!captured) return cudaSuccess;
  auto loan = std::make_unique<Loan>(Loan{device, owner});
  cudaUserObject_t keeper = nullptr;
  LENSBOX_RETURN_IF_FAILED(
      cudaUserObjectCreate(&keeper, loan.get(), give_back, 1, cudaUserObjectNoDestructorSync));
  loan.release();
  return cudaGraphRetainUserObject(graph, keeper, 1, cudaGraphUserObjectMove);
}

}  // namespace lensbox
