// How the loss kernels read pairs of boxes and add up losses. A block has kLossThreads threads (a single
// block may have fewer). Each block writes its sums to a workspace and takes a ticket; the block with the
// last ticket adds up all sums in order.
#pragma once

#include <cooperative_groups.h>

#include "device.cuh"
#include "launch.h"
#include "memory.cuh"

namespace lensbox {

constexpr int kLossWarps = kLossThreads / 32;

// Gradients take no ticket, so fewer blocks would save nothing.
constexpr int kGradientBlocksPerSm = 8;
constexpr int kGradientSlots = 2;  // a thread, 32 apart, in packed memory

// The boxes of a loss in packed memory, of dtypes known at compile time.
template <typename PredType, typename TargetType>
struct PackedPairs {
  using Pred = PredType;
  using Target = TargetType;

  const PackedBox<Pred>* preds;
  const PackedBox<Target>* targets;

  PackedPairs(const SlotView& pred, const SlotView& target)
      : preds(static_cast<const PackedBox<Pred>*>(pred.data)),
        targets(static_cast<const PackedBox<Target>*>(target.data)) {}

  template <typename T>
  __device__ Box<T> pred(int64_t slot) const {
    return to_math<T>(preds[slot]);
  }
  template <typename T>
  __device__ Box<T> target(int64_t slot) const {
    return to_math<T>(targets[slot]);
  }
};

// The boxes of a loss of any dtype, in memory of any strides.
struct StridedPairs {
  SlotView preds, targets;

  StridedPairs(const SlotView& pred, const SlotView& target) : preds(pred), targets(target) {}

  template <typename T>
  __device__ Box<T> pred(int64_t slot) const {
    return load_box<T>(preds, slot);
  }
  template <typename T>
  __device__ Box<T> target(int64_t slot) const {
    return load_box<T>(targets, slot);
  }
};

// A warp takes kSlots * 32 adjacent slots, a thread kSlots of them, 32 apart: loads are adjacent, and the
// boxes at the front of a sample fall to different threads, which compute them at the same time.
template <int kSlots>
__device__ int64_t first_slot() {
  const int lane = threadIdx.x % 32;
  return (int64_t{blockIdx.x} * blockDim.x + threadIdx.x - lane) * kSlots + lane;
}
template <int kSlots>
__device__ int64_t slots_of_grid() {
  return int64_t{gridDim.x} * blockDim.x * kSlots;
}

// Compute the gradient of the predictions alone, in packed memory: d loss / d box_i = -w_i / D  d giou_i / d
// box_i, with D the normalizer. A Group holds the values of `inputs` that a thread loads at once. Every slot
// is written, padding first, because padding waits for no prediction. If `grad` has no data, the gradient of
// the loss is 1.
template <typename Group>
__global__ void __launch_bounds__(kLossThreads)
    packed_backward_kernel(const float* grad, const __grid_constant__ typename Group::Inputs inputs,
                           const double* normalizer, float eps, PackedBox<typename Group::Pred>* grad_pred) {
  begin_early();
  const float upstream = grad == nullptr ? 1.0f : *grad;
  const double divisor = *normalizer;
  for (int64_t first = first_slot<kGradientSlots>(); first < inputs.slot_count();
       first += slots_of_grid<kGradientSlots>()) {
    const Group group(inputs, first);
    group.write_padding(inputs, first, grad_pred);
    const LossScale<float> scale(-upstream, divisor);
#pragma unroll
    for (int k = 0; k < kGradientSlots; ++k) {
      if (!group.valid[k]) continue;
      const Box<float> gradient = giou_gradient(group.pred(k), group.target(k), eps);
      grad_pred[first + 32 * k] = pack_box<typename Group::Pred>(scaled(gradient, scale.of(group.weight(k))));
    }
  }
}

// Launch the kernel. grad is float32; without data it stands for 1.
template <typename Group>
void launch_packed_backward(const typename Group::Inputs& inputs, int64_t slots, const void* grad,
                            const double* normalizer, double eps, const SlotView& grad_pred,
                            cudaStream_t stream) {
  const int64_t threads = (slots + kGradientSlots - 1) / kGradientSlots;
  launch(Start::kEarly, packed_backward_kernel<Group>,
         LaunchShape(grid_size(threads, kLossThreads, kGradientBlocksPerSm), kLossThreads), stream,
         static_cast<const float*>(grad), inputs, normalizer, static_cast<float>(eps),
         static_cast<PackedBox<typename Group::Pred>*>(grad_pred.data));
}

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
// of warps, needs neither workspace nor ticket.
template <typename T>
__device__ void finish_loss(LossSums sums, LossSums* workspace, unsigned int* ticket, T* loss,
                            double* normalizer) {
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
