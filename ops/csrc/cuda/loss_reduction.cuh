// How the loss kernels add up losses. A block has kLossThreads threads (a single block may have fewer). Each
// block writes its sums to a workspace and adds 1 to an arrival counter; the last block to arrive adds up all
// sums in order.
#pragma once

#include <cooperative_groups.h>

#include "device.cuh"
#include "launch.h"

namespace lensbox {

constexpr int kLossWarps = kLossThreads / 32;

struct LossSums {
  double loss;
  double weight;
};

// Return, in lane 0, the sum over the first `lanes` lanes of a warp, a power of two.
__device__ __forceinline__ LossSums warp_sum(LossSums sums, int lanes = 32) {
#pragma unroll
  for (int distance = lanes / 2; distance > 0; distance /= 2) {
    sums.loss += __shfl_down_sync(kFullWarp, sums.loss, distance);
    sums.weight += __shfl_down_sync(kFullWarp, sums.weight, distance);
  }
  return sums;
}

// Return, in thread 0, the sum over the block. Every thread must call this.
__device__ __forceinline__ LossSums block_sum(LossSums sums) {
  __shared__ LossSums of_warp[kLossWarps];
  sums = warp_sum(sums);
  const unsigned int warps = blockDim.x / 32;
  if (warps == 1) return sums;
  __syncthreads();  // of_warp may still be read from an earlier call
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = sums;
  __syncthreads();
  if (threadIdx.x < 32) {
    sums = warp_sum(threadIdx.x < warps ? of_warp[threadIdx.x] : LossSums{0, 0}, kLossWarps);
  }
  return sums;
}

// Return the thread's share of the sums that all blocks wrote to the workspace.
__device__ __forceinline__ LossSums share_of_blocks(const LossSums* workspace) {
  LossSums share = {0, 0};
  for (unsigned int block = threadIdx.x; block < gridDim.x; block += kLossThreads) {
    share.loss += __ldcg(&workspace[block].loss);
    share.weight += __ldcg(&workspace[block].weight);
  }
  return share;
}

// Return the divisor of the sum of losses.
__device__ __forceinline__ double loss_divisor(LossSums total) {
  return total.weight < 1 ? 1 : total.weight;
}

// Add up the sums of all blocks; the last block to arrive writes the results. A single block, of any number
// of warps, needs neither workspace nor arrival counter.
template <typename T>
__device__ void finish_loss(LossSums sums, LossSums* workspace, unsigned int* arrivals, T* loss,
                            double* normalizer) {
  sums = block_sum(sums);
  if (gridDim.x > 1) {
    __shared__ bool is_last;
    if (threadIdx.x == 0) {
      workspace[blockIdx.x] = sums;
      is_last = arrives_last(arrivals, gridDim.x);
    }
    __syncthreads();
    if (!is_last) return;
    sums = block_sum(share_of_blocks(workspace));
  }
  if (threadIdx.x == 0) {
    const double divisor = loss_divisor(sums);
    *loss = static_cast<T>(sums.loss / divisor);
    *normalizer = divisor;
  }
}

// Return the sums of all blocks, in every thread of each block. All blocks must run at the same time. A
// single block needs no workspace.
__device__ __forceinline__ LossSums sum_in_all_threads(LossSums sums, LossSums* workspace) {
  __shared__ LossSums total;
  sums = block_sum(sums);
  if (gridDim.x > 1) {
    if (threadIdx.x == 0) workspace[blockIdx.x] = sums;
    cooperative_groups::this_grid().sync();
    sums = block_sum(share_of_blocks(workspace));
  }
  if (threadIdx.x == 0) total = sums;
  __syncthreads();
  return total;
}

}  // namespace lensbox
