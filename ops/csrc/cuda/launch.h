// Launch kernels: the number of blocks, the way a kernel starts, the counters of its blocks.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <type_traits>

// The runtime keeps an error until it is read; otherwise a later launch would report this error.
#define LENSBOX_RETURN_IF_FAILED(call)                          \
  if (const cudaError_t error = (call); error != cudaSuccess) { \
    cudaGetLastError();                                         \
    return error;                                               \
  }

namespace lensbox {

// Return an attribute of the current device. If the query fails, return 1: the launch fails too and reports
// the error.
inline int device_attribute(cudaDeviceAttr attribute) {
  int device = 0, value = 1;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&value, attribute, device);
  return value;
}

inline int multiprocessors() {
  return device_attribute(cudaDevAttrMultiProcessorCount);
}

// Return whether blocks can form clusters, and kernels can start early.
inline bool has_clusters() {
  return device_attribute(cudaDevAttrComputeCapabilityMajor) >= 9;
}

// Return the number of blocks of `threads` for `items`, at most `blocks_per_sm` on each multiprocessor of the
// current device: the kernels take the remaining items in a grid-stride loop. Return at least 1, so that a
// kernel writes the result of an empty input too.
inline int grid_size(int64_t items, int threads, int blocks_per_sm) {
  const int64_t wanted = (items + threads - 1) / threads;
  return static_cast<int>(std::clamp<int64_t>(wanted, 1, int64_t{multiprocessors()} * blocks_per_sm));
}

// The number of blocks of a launch, of threads in a block, of neighbouring blocks in a cluster, and of bytes
// of dynamic shared memory.
struct LaunchShape {
  dim3 blocks, threads;
  unsigned int cluster = 1;
  size_t shared_bytes = 0;

  LaunchShape(dim3 grid, dim3 block) : blocks(grid), threads(block) {}
  LaunchShape(int grid, int block)
      : blocks(static_cast<unsigned int>(grid)), threads(static_cast<unsigned int>(block)) {}
};

// A kernel starts while the launch before ends, and begins with begin_early() or wait_for_earlier()
// (device.cuh).
enum class Start {
  kProgrammatic,
  kCooperative,  // and all blocks at the same time, so that they can wait for each other. If not all fit on
                 // the device, none runs, and the error is cudaErrorCooperativeLaunchTooLarge
};

template <typename... Parameters>
cudaError_t launch(Start start, void (*kernel)(Parameters...), const LaunchShape& shape, cudaStream_t stream,
                   std::type_identity_t<Parameters>... arguments) {
  cudaLaunchAttribute attributes[3] = {};
  cudaLaunchConfig_t config = {};
  config.gridDim = shape.blocks;
  config.blockDim = shape.threads;
  config.dynamicSmemBytes = shape.shared_bytes;
  config.stream = stream;
  config.attrs = attributes;
  if (start == Start::kCooperative) {
    attributes[config.numAttrs].id = cudaLaunchAttributeCooperative;
    attributes[config.numAttrs++].val.cooperative = 1;
  }
  if (has_clusters()) {
    attributes[config.numAttrs].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[config.numAttrs++].val.programmaticStreamSerializationAllowed = 1;
  }
  if (shape.cluster > 1) {
    attributes[config.numAttrs].id = cudaLaunchAttributeClusterDimension;
    attributes[config.numAttrs++].val.clusterDim = {shape.cluster, 1, 1};
  }
  return cudaLaunchKernelEx(&config, kernel, arguments...);
}

// The launch shape of the kernels that add up a loss: few blocks, since the last block adds up the sums of
// all blocks. If one block is enough, it has no more warps than there is work for.
constexpr int kLossThreads = 256;
constexpr int kLossBlocksPerSm = 4;

inline LaunchShape loss_shape(int64_t threads) {
  if (threads > kLossThreads) return {grid_size(threads, kLossThreads, kLossBlocksPerSm), kLossThreads};
  const int warps = static_cast<int>(threads + 31) / 32;
  return {1, 32 * std::max(warps, 1)};
}

// Arrival counters: a launch finds them at 0 and leaves them at 0. arrival_counters.cu says which launches
// may use which.

// The most counters that a launch can have.
constexpr unsigned int kArrivalCounters = 64;

// A workspace begins with room for kArrivalCounters counters; the kernel's memory follows.
constexpr size_t kSpareBytes = kArrivalCounters * sizeof(unsigned int);

inline void* behind_spare(void* workspace) {
  return workspace != nullptr ? static_cast<char*>(workspace) + kSpareBytes : nullptr;
}

// Point `arrivals` at kArrivalCounters counters on the current device that hold 0 and that no launch running
// at the same time shares. A launch on `stream` leaves them at 0. `spare` is a workspace, or nullptr for a
// launch that counts no arrivals; its counters are zeroed, by one more launch, should all others be taken.
cudaError_t take_arrival_counters(cudaStream_t stream, void* spare, unsigned int** arrivals);

}  // namespace lensbox
