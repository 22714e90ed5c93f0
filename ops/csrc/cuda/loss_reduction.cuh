// How the loss kernels add up: blocks of kLossThreads threads (one alone may be smaller), a workspace with
// the sums of each block, and a ticket that tells the last block to add those up in order.
#pragma once

#include <cooperative_groups.h>

#include "last_block.cuh"
#include "launch.h"
#include "warp.cuh"

namespace lensbox {

constexpr int kLossWarps = kLossThreads / 32;

struct LossSums {
  double loss;
  double weight;
};

// The sum over the first `lanes` lanes of a warp, a power of two, in lane 0.
__device__ __forceinline__ LossSums warp_sum(LossSums sums, int lanes = 32) {
#pragma unroll
  for (int distance = lanes / 2; distance > 0; distance /= 2) {
    sums.loss += __shfl_down_sync(kFullWarp, sums.loss, distance);
    sums.weight += __shfl_down_sync(kFullWarp, sums.weight, distance);
  }
  return sums;
}

// The sum over the block, in thread 0. Every thread must call it.
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

// The thread's share of the sums that all blocks have left in the workspace.
__device__ __forceinline__ LossSums share_of_blocks(const LossSums* workspace) {
  LossSums share = {0, 0};
  for (unsigned int block = threadIdx.x; block < gridDim.x; block += kLossThreads) {
    share.loss += __ldcg(&workspace[block].loss);
    share.weight += __ldcg(&workspace[block].weight);
  }
  return share;
}

// What the sum of losses is divided by.
__device__ __forceinline__ double loss_divisor(LossSums total) {
  return total.weight < 1 ? 1 : total.weight;
}

// Adds up the sums of all blocks; the last block to arrive writes the results. One block alone, of any number
// of warps, needs neither workspace nor ticket.
template <typename T>
__device__ void finish_loss(LossSums sums, LossSums* workspace, unsigned int* ticket, T* loss,
                            T* normalizer) {
  sums = block_sum(sums);
  if (gridDim.x > 1) {
    __shared__ bool is_last;
    if (threadIdx.x == 0) {
      workspace[blockIdx.x] = sums;
      is_last = take_last_ticket(ticket, gridDim.x);
    }
    __syncthreads();
    if (!is_last) return;
    sums = block_sum(share_of_blocks(workspace));
  }
  if (threadIdx.x == 0) {
    const double divisor = loss_divisor(sums);
    *loss = static_cast<T>(sums.loss / divisor);
    *normalizer = static_cast<T>(divisor);
  }
}

// The sums of all blocks, in every thread of each, where all blocks run at the same time. One block alone
// needs no workspace.
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
