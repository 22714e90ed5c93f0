// What the launchers share: how many blocks to start, and starting them early.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <type_traits>

namespace lensbox {

// Of the current device. Should the query fail, so will the launch, which reports it; until then it is 1.
inline int device_attribute(cudaDeviceAttr attribute) {
  int device = 0, value = 1;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&value, attribute, device);
  return value;
}

inline int multiprocessors() {
  return device_attribute(cudaDevAttrMultiProcessorCount);
}

// Blocks of `threads` for `items`, never more than `blocks_per_sm` on each multiprocessor of the current
// device: the kernels walk what is left with a grid-stride loop. At least one, so that an empty input still
// has its result written.
inline int grid_size(int64_t items, int threads, int blocks_per_sm) {
  const int64_t wanted = (items + threads - 1) / threads;
  return static_cast<int>(std::clamp<int64_t>(wanted, 1, int64_t{multiprocessors()} * blocks_per_sm));
}

// Launches a kernel that begins with begin_early() (early_start.cuh).
template <typename... Parameters>
cudaError_t launch_early(void (*kernel)(Parameters...), int blocks, int threads, cudaStream_t stream,
                         std::type_identity_t<Parameters>... arguments) {
  cudaLaunchAttribute early = {};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned int>(blocks));
  config.blockDim = dim3(static_cast<unsigned int>(threads));
  config.stream = stream;
  config.attrs = &early;
  config.numAttrs = device_attribute(cudaDevAttrComputeCapabilityMajor) >= 9 ? 1 : 0;
  return cudaLaunchKernelEx(&config, kernel, arguments...);
}

// The kernels that add up a loss: few blocks, since each adds to the work of the last one.
constexpr int kLossThreads = 256;
constexpr int kLossBlocksPerSm = 4;

inline int loss_grid_size(int64_t items) {
  return grid_size(items, kLossThreads, kLossBlocksPerSm);
}

// The most blocks that such a launch has on the current device.
inline int loss_max_blocks() {
  return loss_grid_size(INT64_MAX / 2);
}

}  // namespace lensbox
