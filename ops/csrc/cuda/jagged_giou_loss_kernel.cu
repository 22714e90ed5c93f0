// The GIoU loss of padded predictions against packed targets: one launch forward, one backward.
//
// The forward gives a thread to each target, so padding costs nothing at all; a thread finds its image by
// binary search in the offsets, which stay in the L1 cache. The offsets cannot be checked on the host without
// waiting for the device, so the threads check them, and a broken one makes the loss NaN.

#include <cmath>

#include "../jagged.h"
#include "jagged_giou_loss_kernel.h"
#include "loss_reduction.cuh"
#include "memory.cuh"

namespace lensbox {
namespace {

constexpr int kGradientBlocksPerSm = 8;

// A target and the prediction slot it belongs to; slot -1 where the offsets are broken.
struct Pair {
  int64_t target, slot;
};

__device__ Segment segment_of(const JaggedProblem& problem, int64_t image, bool& valid) {
  const int64_t first = load_number<int64_t>(problem.offsets, image);
  const int64_t end = load_number<int64_t>(problem.offsets, image + 1);
  valid = is_valid_segment(image, first, end, problem.images, problem.slots, problem.target_count);
  return {first, end - first};
}

// Binary search for the last image that starts at or before the target.
__device__ Pair find_pair(const JaggedProblem& problem, int64_t target) {
  int64_t low = 0, high = problem.images - 1;
  while (low < high) {
    const int64_t middle = low + (high - low + 1) / 2;
    if (load_number<int64_t>(problem.offsets, middle) <= target) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  if (high < 0) return {target, -1};
  bool valid;
  const Segment segment = segment_of(problem, low, valid);
  const int64_t position = target - segment.first;
  valid = valid && position >= 0 && position < segment.count;
  return {target, valid ? low * problem.slots + position : -1};
}

// Threads walk the targets and, beside them, the images, whose offsets they check.
template <typename T>
__global__ void __launch_bounds__(kLossThreads)
    jagged_forward_kernel(const __grid_constant__ JaggedProblem problem, T eps, LossSums* workspace,
                          unsigned int* ticket, T* loss, T* normalizer) {
  LossSums sums = {0, 0};
  const int64_t step = int64_t{gridDim.x} * kLossThreads;
  const int64_t start = int64_t{blockIdx.x} * kLossThreads + threadIdx.x;
  for (int64_t target = start; target < problem.target_count; target += step) {
    const Pair pair = find_pair(problem, target);
    const T pair_loss = pair.slot < 0 ? T(NAN)
                                      : T(1) - giou(load_box<T>(problem.pred, pair.slot),
                                                    load_box<T>(problem.targets, target), eps);
    sums.loss += static_cast<double>(pair_loss);
    sums.weight += 1;
  }
  for (int64_t image = start; image < problem.images; image += step) {
    bool valid;
    segment_of(problem, image, valid);
    if (!valid) sums.loss = NAN;
  }
  finish_loss(sums, workspace, ticket, loss, normalizer);
}

// Threads walk the prediction slots, then the targets: each gradient is written once, by the thread of its
// slot. d loss / d box = -1 / D  d giou / d box, with D the normalizer.
template <typename T>
__global__ void __launch_bounds__(kLossThreads)
    jagged_backward_kernel(const __grid_constant__ SlotView grad,
                           const __grid_constant__ JaggedProblem problem, const T* normalizer, T eps,
                           const __grid_constant__ SlotView grad_pred, bool has_pred,
                           const __grid_constant__ SlotView grad_targets, bool has_targets) {
  const T factor = -load_number<T>(grad, 0) / *normalizer;
  const T nan = T(NAN);
  const int64_t step = int64_t{gridDim.x} * kLossThreads;
  const int64_t start = int64_t{blockIdx.x} * kLossThreads + threadIdx.x;
  const int64_t pred_slots = has_pred ? problem.images * problem.slots : 0;
  for (int64_t slot = start; slot < pred_slots; slot += step) {
    const int64_t image = slot / problem.slots;
    const int64_t position = slot - image * problem.slots;
    bool valid;
    const Segment segment = segment_of(problem, image, valid);
    Box<T> gradient = valid ? Box<T>{0, 0, 0, 0} : Box<T>{nan, nan, nan, nan};
    if (valid && position < segment.count) {
      const Box<T> wanted = load_box<T>(problem.targets, segment.first + position);
      gradient = scaled(giou_gradient(load_box<T>(problem.pred, slot), wanted, eps), factor);
    }
    store_gradient(grad_pred, slot, gradient);
  }
  const int64_t targets = has_targets ? problem.target_count : 0;
  for (int64_t target = start; target < targets; target += step) {
    const Pair pair = find_pair(problem, target);
    Box<T> gradient = {nan, nan, nan, nan};
    if (pair.slot >= 0) {
      const Box<T> predicted = load_box<T>(problem.pred, pair.slot);
      gradient = scaled(giou_gradient(load_box<T>(problem.targets, target), predicted, eps), factor);
    }
    store_gradient(grad_targets, target, gradient);
  }
}

template <typename T>
void forward(const JaggedProblem& problem, double eps, LossSums* workspace, unsigned int* ticket, void* loss,
             void* normalizer, cudaStream_t stream) {
  const int blocks = loss_grid_size(std::max(problem.target_count, problem.images));
  jagged_forward_kernel<T><<<blocks, kLossThreads, 0, stream>>>(
      problem, static_cast<T>(eps), workspace, ticket, static_cast<T*>(loss), static_cast<T*>(normalizer));
}

template <typename T>
void backward(const SlotView& grad, const JaggedProblem& problem, const SlotView& normalizer, double eps,
              const SlotView* grad_pred, const SlotView* grad_targets, cudaStream_t stream) {
  const int64_t items = std::max(problem.images * problem.slots, problem.target_count);
  jagged_backward_kernel<T>
      <<<grid_size(items, kLossThreads, kGradientBlocksPerSm), kLossThreads, 0, stream>>>(
          grad, problem, static_cast<const T*>(normalizer.data), static_cast<T>(eps),
          grad_pred != nullptr ? *grad_pred : SlotView{}, grad_pred != nullptr,
          grad_targets != nullptr ? *grad_targets : SlotView{}, grad_targets != nullptr);
}

}  // namespace

cudaError_t launch_jagged_giou_loss_forward(const JaggedProblem& problem, double eps, bool in_double,
                                            double* workspace, unsigned int* ticket, void* loss,
                                            void* normalizer, cudaStream_t stream) {
  const auto launch = in_double ? forward<double> : forward<float>;
  launch(problem, eps, reinterpret_cast<LossSums*>(workspace), ticket, loss, normalizer, stream);
  return cudaGetLastError();
}

cudaError_t launch_jagged_giou_loss_backward(const SlotView& grad, const JaggedProblem& problem,
                                             const SlotView& normalizer, double eps, bool in_double,
                                             const SlotView* grad_pred, const SlotView* grad_targets,
                                             cudaStream_t stream) {
  if (problem.images * problem.slots == 0 && problem.target_count == 0) return cudaSuccess;
  const auto launch = in_double ? backward<double> : backward<float>;
  launch(grad, problem, normalizer, eps, grad_pred, grad_targets, stream);
  return cudaGetLastError();
}

}  // namespace lensbox
