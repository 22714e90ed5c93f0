// The allocation of counters to launches. Two launches that may run at the same time never share a counter:
//
//   launches on one stream follow each other     a range of counters for each stream
//   cudaStreamPerThread is a stream per thread    a range for each thread
//   a graph may be replayed beside any launch     a range for each stream of a capture, while its graph lives
//
// There is no lock: CUDA calls give_back with locks of its own held, and other threads wait for those locks
// within CUDA calls. A range belongs to whoever writes its key into `owners` first.

#include <atomic>
#include <cstdint>

#include "launch.h"

namespace lensbox {
namespace {

constexpr unsigned int kRangeBits = 12;
constexpr unsigned int kRanges = 1u << kRangeBits;
constexpr unsigned int kMaxProbes = 64;  // ranges that a key may have; if all are taken, the spare is used
constexpr int kMaxDevices = 64;

// Loading the module zeroes the counters, and each launch leaves its own at 0 again (the increment wraps).
__device__ unsigned int counters[kRanges * kArrivalCounters];

// The key of a stream is its handle, which leaves the upper bits free. A capture looks for free ranges only.
using Key = uint64_t;
constexpr Key kFree = 0;
constexpr Key kTaken = ~Key{0};  // by a graph
constexpr Key kThread = Key{1} << 63, kCapture = Key{1} << 62;

// Never destroyed: graphs may outlive the other statics of this library.
std::atomic<Key> owners[kMaxDevices][kRanges];
std::atomic<unsigned int*> addresses[kMaxDevices];  // of the counters on each device

// CUDA calls this when the graph and all its instances are gone and no replay of them is running.
void give_back(void* owner) {
  static_cast<std::atomic<Key>*>(owner)->store(kFree, std::memory_order_release);
}

Key key_of(cudaStream_t stream) {
  static std::atomic<Key> threads = 0;
  thread_local const Key thread = ++threads;
  if (stream == cudaStreamPerThread) return kThread | thread;
  return stream == nullptr ? reinterpret_cast<Key>(cudaStreamLegacy) : reinterpret_cast<Key>(stream);
}

// Return the owner of a range with this key, or of a free one, which gets `owner`; nullptr if there is none.
// A stream may get a second range if one before its first became free; both stay the stream's own.
std::atomic<Key>* find_range(std::atomic<Key>* ranges, Key key, Key owner) {
  const Key hash = (key * 0x9E3779B97F4A7C15u) >> (64 - kRangeBits);
  for (unsigned int probe = 0; probe < kMaxProbes; ++probe) {
    std::atomic<Key>& range = ranges[(hash + probe) % kRanges];
    Key found = range.load(std::memory_order_acquire);
    if (found == kFree && range.compare_exchange_strong(found, owner)) return &range;
    if (found == key) return &range;
  }
  return nullptr;
}

// Give the graph that is being captured the range.
cudaError_t lend(std::atomic<Key>* range, cudaGraph_t graph) {
  cudaUserObject_t keeper = nullptr;
  cudaError_t error = cudaUserObjectCreate(&keeper, range, give_back, 1, cudaUserObjectNoDestructorSync);
  if (error != cudaSuccess) {
    give_back(range);
    return error;
  }
  error = cudaGraphRetainUserObject(graph, keeper, 1, cudaGraphUserObjectMove);
  if (error != cudaSuccess) cudaUserObjectRelease(keeper);
  return error;
}

// Asking for the address may load the module, which a strict capture would forbid. Threads that ask at the
// same time get the same address.
cudaError_t find_counters(int device, unsigned int** found) {
  *found = addresses[device].load(std::memory_order_acquire);
  if (*found != nullptr) return cudaSuccess;
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  cudaThreadExchangeStreamCaptureMode(&mode);
  const cudaError_t error = cudaGetSymbolAddress(reinterpret_cast<void**>(found), counters);
  cudaThreadExchangeStreamCaptureMode(&mode);
  if (error == cudaSuccess) addresses[device].store(*found, std::memory_order_release);
  return error;
}

// The range that this thread's last captured launch got: the launches of one stream of a capture share it.
struct LastCapture {
  unsigned long long capture = 0;
  cudaStream_t stream = nullptr;
  std::atomic<Key>* range = nullptr;
};

}  // namespace

cudaError_t take_arrival_counters(cudaStream_t stream, void* spare, unsigned int** arrivals) {
  if (spare == nullptr) return cudaSuccess;
  int device = 0;
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  unsigned long long capture = 0;
  cudaGraph_t graph = nullptr;
  LENSBOX_RETURN_IF_FAILED(cudaGetDevice(&device));
  LENSBOX_RETURN_IF_FAILED(cudaStreamGetCaptureInfo(stream, &status, &capture, &graph));
  std::atomic<Key>* range = nullptr;
  if (device < kMaxDevices) {
    unsigned int* first = nullptr;
    LENSBOX_RETURN_IF_FAILED(find_counters(device, &first));
    thread_local LastCapture last;
    if (status != cudaStreamCaptureStatusActive) {
      const Key key = key_of(stream);
      range = find_range(owners[device], key, key);
    } else if (last.range != nullptr && last.capture == capture && last.stream == stream) {
      range = last.range;
    } else if ((range = find_range(owners[device], kCapture | capture, kTaken)) != nullptr) {
      LENSBOX_RETURN_IF_FAILED(lend(range, graph));
      last = {capture, stream, range};
    }
    if (range != nullptr) *arrivals = first + (range - owners[device]) * kArrivalCounters;
  }
  if (range != nullptr) return cudaSuccess;
  *arrivals = static_cast<unsigned int*>(spare);
  return cudaMemsetAsync(spare, 0, kSpareBytes, stream);
}

}  // namespace lensbox
