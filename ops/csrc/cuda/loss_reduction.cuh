// How the loss kernels add up: blocks of kLossThreads threads, a workspace with the sums of each block, and a
// ticket that tells the last block to add those up in order.
#pragma once

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
  __syncthreads();  // of_warp may still be read from an earlier call
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = sums;
  __syncthreads();
  if (threadIdx.x < 32) {
    sums = warp_sum(threadIdx.x < kLossWarps ? of_warp[threadIdx.x] : LossSums{0, 0}, kLossWarps);
  }
  return sums;
}

// Adds up the sums of all blocks; the last block to arrive writes the results.
template <typename T>
__device__ void finish_loss(LossSums sums, LossSums* workspace, unsigned int* ticket, T* loss,
                            T* normalizer) {
  __shared__ bool is_last;
  sums = block_sum(sums);
  if (threadIdx.x == 0) {
    workspace[blockIdx.x] = sums;
    is_last = take_last_ticket(ticket, gridDim.x);
  }
  __syncthreads();
  if (!is_last) return;

  LossSums total = {0, 0};
  for (unsigned int block = threadIdx.x; block < gridDim.x; block += kLossThreads) {
    total.loss += __ldcg(&workspace[block].loss);
    total.weight += __ldcg(&workspace[block].weight);
  }
  total = block_sum(total);
  if (threadIdx.x == 0) {
    const double divisor = total.weight < 1 ? 1 : total.weight;
    *loss = static_cast<T>(total.loss / divisor);
    *normalizer = static_cast<T>(divisor);
  }
}

}  // namespace lensbox
