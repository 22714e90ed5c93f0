// The GIoU loss of padded predictions against packed targets: one launch forward, one backward.
//
// The forward gives a thread to each target, so padding costs nothing at all; a warp finds the images of its
// 32 targets together. The offsets cannot be checked on the host without waiting for the device, so the
// threads check them, and a broken one makes the loss NaN.
//
// As for the padded loss there are two families of kernels, which differ in how they read: "packed" memory of
// dtypes known at compile time, or any dtype through any strides.

#include <cmath>

#include "../jagged.h"
#include "early_start.cuh"
#include "jagged_giou_loss_kernel.h"
#include "loss_reduction.cuh"
#include "memory.cuh"
#include "packed_types.cuh"
#include "warp.cuh"

namespace lensbox {
namespace {

constexpr int kGradientBlocksPerSm = 8;

// The inputs of a problem, in packed memory ...
template <typename Pred, typename Target>
struct PackedInputs {
  const PackedBox<Pred>* preds;
  const PackedBox<Target>* targets;
  const int64_t* offsets;
  int64_t images, slots, target_count;

  explicit PackedInputs(const JaggedProblem& problem)
      : preds(static_cast<const PackedBox<Pred>*>(problem.pred.data)),
        targets(static_cast<const PackedBox<Target>*>(problem.targets.data)),
        offsets(static_cast<const int64_t*>(problem.offsets.data)),
        images(problem.images),
        slots(problem.slots),
        target_count(problem.target_count) {}

  template <typename T>
  __device__ Box<T> pred(int64_t slot) const {
    return to_math<T>(preds[slot]);
  }
  template <typename T>
  __device__ Box<T> target(int64_t index) const {
    return to_math<T>(targets[index]);
  }
  __device__ int64_t offset(int64_t image) const { return offsets[image]; }
};

// ... or in any.
struct StridedInputs {
  SlotView preds, targets, offsets;
  int64_t images, slots, target_count;

  explicit StridedInputs(const JaggedProblem& problem)
      : preds(problem.pred),
        targets(problem.targets),
        offsets(problem.offsets),
        images(problem.images),
        slots(problem.slots),
        target_count(problem.target_count) {}

  template <typename T>
  __device__ Box<T> pred(int64_t slot) const {
    return load_box<T>(preds, slot);
  }
  template <typename T>
  __device__ Box<T> target(int64_t index) const {
    return load_box<T>(targets, index);
  }
  __device__ int64_t offset(int64_t image) const { return load_number<int64_t>(offsets, image); }
};

template <typename Inputs>
__device__ Segment segment_of(const Inputs& inputs, int64_t image, bool& valid) {
  const int64_t first = inputs.offset(image);
  const int64_t end = inputs.offset(image + 1);
  valid = is_valid_segment(image, first, end, inputs.images, inputs.slots, inputs.target_count);
  return {first, end - first};
}

// The last image that starts at or before a warp's first target, found by all lanes: each round they look at
// 32 offsets and keep one of the 33 parts between them.
template <typename Inputs>
__device__ int64_t image_of_warp(const Inputs& inputs, int64_t first_target) {
  const int lane = threadIdx.x % 32;
  int64_t low = 0, high = inputs.images - 1;
  while (low < high) {
    const int64_t stride = (high - low + 31) / 32;
    const int64_t probe = low + (lane + 1) * stride;
    const bool starts = probe <= high && inputs.offset(probe) <= first_target;
    const int passed = __popc(__ballot_sync(kFullWarp, starts));
    high = min(high, low + (passed + 1) * stride - 1);
    low += passed * stride;
  }
  return low;
}

// The prediction slot of the lane's target, first_target + lane; -1 where the offsets are broken or there is
// no such target. All lanes of a warp must call it.
template <typename Inputs>
__device__ int64_t slot_of_target(const Inputs& inputs, int64_t first_target) {
  const int lane = threadIdx.x % 32;
  if (inputs.images == 0) return -1;
  const int64_t target = first_target + lane;
  const int64_t last_target = min(first_target + 31, inputs.target_count - 1);
  // Every later image that starts at or before the target moves it one image on. Lane l holds the start of
  // the l-th of 32 images; a lane counts with a binary search in the starts of all.
  int64_t image = image_of_warp(inputs, first_target);
  for (int64_t next = image + 1; next < inputs.images; next += 32) {
    const int64_t start = next + lane < inputs.images ? inputs.offset(next + lane) : INT64_MAX;
    const int64_t last_start = __shfl_sync(kFullWarp, start, 31);
    int passed = 0;
    for (int half = 16; half > 0; half /= 2) {
      if (__shfl_sync(kFullWarp, start, passed + half - 1) <= target) passed += half;
    }
    image += passed + (passed == 31 && last_start <= target ? 1 : 0);
    if (last_start > last_target) break;
  }
  if (target >= inputs.target_count) return -1;
  bool valid;
  const Segment segment = segment_of(inputs, image, valid);
  const int64_t position = target - segment.first;
  return valid && position >= 0 && position < segment.count ? image * inputs.slots + position : -1;
}

// Threads walk the targets and, beside them, the images, whose offsets they check.
template <typename T, typename Inputs>
__global__ void __launch_bounds__(kLossThreads)
    jagged_forward_kernel(const __grid_constant__ Inputs inputs, T eps, LossSums* workspace,
                          unsigned int* ticket, T* loss, T* normalizer) {
  begin_early();
  LossSums sums = {0, 0};
  const int lane = threadIdx.x % 32;
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  const int64_t start = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  for (int64_t first = start - lane; first < inputs.target_count; first += step) {
    const int64_t target = first + lane;
    const int64_t slot = slot_of_target(inputs, first);
    if (target >= inputs.target_count) continue;
    const T value =
        slot < 0 ? T(NAN) : giou(inputs.template pred<T>(slot), inputs.template target<T>(target), eps);
    sums.loss += static_cast<double>(T(1) - value);
    sums.weight += 1;
  }
  for (int64_t image = start; image < inputs.images; image += step) {
    bool valid;
    segment_of(inputs, image, valid);
    if (!valid) sums.loss = NAN;
  }
  finish_loss(sums, workspace, ticket, loss, normalizer);
}

// slot / slots of a positive divisor; the 32-bit division is many times cheaper.
__device__ __forceinline__ int64_t image_of_slot(int64_t slot, int64_t slots) {
  if ((slot | slots) >> 32 == 0) return static_cast<uint32_t>(slot) / static_cast<uint32_t>(slots);
  return slot / slots;
}

// Threads walk the prediction slots, then the targets: each gradient is written once, by the thread of its
// slot. d loss / d box = -1 / D  d giou / d box, with D the normalizer.
template <typename T, typename Inputs>
__global__ void __launch_bounds__(kLossThreads)
    jagged_backward_kernel(const __grid_constant__ SlotView grad, const __grid_constant__ Inputs inputs,
                           const T* normalizer, T eps, const __grid_constant__ SlotView grad_pred,
                           bool has_pred, const __grid_constant__ SlotView grad_targets, bool has_targets) {
  begin_early();
  const T factor = -load_number<T>(grad, 0) / *normalizer;
  const T nan = T(NAN);
  const int lane = threadIdx.x % 32;
  const int64_t step = int64_t{gridDim.x} * kLossThreads;
  const int64_t start = int64_t{blockIdx.x} * kLossThreads + threadIdx.x;
  const int64_t pred_slots = has_pred ? inputs.images * inputs.slots : 0;
  for (int64_t slot = start; slot < pred_slots; slot += step) {
    const int64_t image = image_of_slot(slot, inputs.slots);
    const int64_t position = slot - image * inputs.slots;
    bool valid;
    const Segment segment = segment_of(inputs, image, valid);
    Box<T> gradient = valid ? Box<T>{0, 0, 0, 0} : Box<T>{nan, nan, nan, nan};
    if (valid && position < segment.count) {
      const Box<T> wanted = inputs.template target<T>(segment.first + position);
      gradient = scaled(giou_gradient(inputs.template pred<T>(slot), wanted, eps), factor);
    }
    store_box(grad_pred, slot, gradient);
  }
  const int64_t targets = has_targets ? inputs.target_count : 0;
  for (int64_t first = start - lane; first < targets; first += step) {
    const int64_t target = first + lane;
    const int64_t slot = slot_of_target(inputs, first);
    if (target >= targets) continue;
    Box<T> gradient = {nan, nan, nan, nan};
    if (slot >= 0) {
      const Box<T> predicted = inputs.template pred<T>(slot);
      gradient = scaled(giou_gradient(inputs.template target<T>(target), predicted, eps), factor);
    }
    store_box(grad_targets, target, gradient);
  }
}

// Calls body(math, inputs) with the arithmetic type, as a value, and the inputs as they can be read best.
template <typename Body>
void with_inputs(const JaggedProblem& problem, bool in_double, const Body& body) {
  const bool packed = problem.offsets.packed && problem.offsets.dtype == DType::kInt64;
  if (packed && with_packed_types(problem.pred, problem.targets, [&](auto pred_tag, auto target_tag) {
        using Pred = typename decltype(pred_tag)::type;
        using Target = typename decltype(target_tag)::type;
        body(PackedMath<Pred, Target>{}, PackedInputs<Pred, Target>(problem));
      })) {
    return;
  }
  if (in_double) return body(double{}, StridedInputs(problem));
  return body(float{}, StridedInputs(problem));
}

}  // namespace

cudaError_t launch_jagged_giou_loss_forward(const JaggedProblem& problem, double eps, bool in_double,
                                            double* workspace, unsigned int* ticket, void* loss,
                                            void* normalizer, cudaStream_t stream) {
  with_inputs(problem, in_double, [&](auto math, const auto& inputs) {
    using T = decltype(math);
    launch(Start::kEarly, jagged_forward_kernel<T, std::decay_t<decltype(inputs)>>,
           loss_shape(std::max(problem.target_count, problem.images)), stream, inputs, static_cast<T>(eps),
           reinterpret_cast<LossSums*>(workspace), ticket, static_cast<T*>(loss),
           static_cast<T*>(normalizer));
  });
  return cudaGetLastError();
}

cudaError_t launch_jagged_giou_loss_backward(const SlotView& grad, const JaggedProblem& problem,
                                             const SlotView& normalizer, double eps, bool in_double,
                                             const SlotView* grad_pred, const SlotView* grad_targets,
                                             cudaStream_t stream) {
  const int64_t items = std::max(problem.images * problem.slots, problem.target_count);
  if (items == 0) return cudaSuccess;
  with_inputs(problem, in_double, [&](auto math, const auto& inputs) {
    using T = decltype(math);
    launch(Start::kEarly, jagged_backward_kernel<T, std::decay_t<decltype(inputs)>>,
           LaunchShape(grid_size(items, kLossThreads, kGradientBlocksPerSm), kLossThreads), stream, grad,
           inputs, static_cast<const T*>(normalizer.data), static_cast<T>(eps),
           grad_pred != nullptr ? *grad_pred : SlotView{}, grad_pred != nullptr,
           grad_targets != nullptr ? *grad_targets : SlotView{}, grad_targets != nullptr);
  });
  return cudaGetLastError();
}

}  // namespace lensbox
