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
constexpr int kGradientSlots = 2;  // a thread, 32 apart, in packed memory

// The inputs of a problem, in packed memory ...
template <typename PredType, typename TargetType>
struct PackedInputs {
  using Pred = PredType;
  using Target = TargetType;

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
  __device__ int64_t offset(int64_t image) const {
    const int64_t at = image * offsets.strides[0];
    return offsets.dtype == DType::kInt32 ? static_cast<const int32_t*>(offsets.data)[at]
                                          : static_cast<const int64_t*>(offsets.data)[at];
  }
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
    forward_kernel(const __grid_constant__ Inputs inputs, T eps, LossSums* workspace, unsigned int* ticket,
                   T* loss, T* normalizer) {
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

// d loss / d box = -1 / D  d giou / d box, with D the normalizer. The gradient of the predictions alone, in
// packed memory: a thread takes kGradientSlots slots at once, and all that it loads together is in flight
// together. Padding is written first: it waits for no box.
template <typename T, typename Inputs>
__global__ void __launch_bounds__(kLossThreads)
    packed_backward_kernel(const T* grad, const __grid_constant__ Inputs inputs, const T* normalizer, T eps,
                           PackedBox<typename Inputs::Pred>* grad_pred) {
  using Pred = typename Inputs::Pred;
  begin_early();
  const T upstream = *grad, divisor = *normalizer;
  const T nan = T(NAN);
  const int lane = threadIdx.x % 32;
  const int64_t slots = inputs.images * inputs.slots;
  const int64_t step = int64_t{gridDim.x} * kLossThreads * kGradientSlots;
  const int64_t start = (int64_t{blockIdx.x} * kLossThreads + threadIdx.x - lane) * kGradientSlots + lane;
  for (int64_t first = start; first < slots; first += step) {
    Segment segments[kGradientSlots];
    int64_t positions[kGradientSlots];
    bool valid[kGradientSlots];
#pragma unroll
    for (int k = 0; k < kGradientSlots; ++k) {
      const int64_t slot = min(first + 32 * k, slots - 1);
      const int64_t image = image_of_slot(slot, inputs.slots);
      positions[k] = slot - image * inputs.slots;
      segments[k] = segment_of(inputs, image, valid[k]);
    }
    PackedBox<Pred> preds[kGradientSlots];
    PackedBox<typename Inputs::Target> targets[kGradientSlots];
    bool filled[kGradientSlots];
#pragma unroll
    for (int k = 0; k < kGradientSlots; ++k) {
      const int64_t slot = first + 32 * k;
      filled[k] = slot < slots && valid[k] && positions[k] < segments[k].count;
      if (filled[k]) {
        preds[k] = inputs.preds[slot];
        targets[k] = inputs.targets[segments[k].first + positions[k]];
      } else if (slot < slots) {
        grad_pred[slot] = valid[k] ? PackedBox<Pred>{} : pack_box<Pred>(Box<T>{nan, nan, nan, nan});
      }
    }
    const T factor = -upstream / divisor;
#pragma unroll
    for (int k = 0; k < kGradientSlots; ++k) {
      if (!filled[k]) continue;
      const Box<T> gradient = giou_gradient(to_math<T>(preds[k]), to_math<T>(targets[k]), eps);
      grad_pred[first + 32 * k] = pack_box<Pred>(scaled(gradient, factor));
    }
  }
}

// Any gradients, through any strides. Threads walk the prediction slots, then the targets: each gradient is
// written once, by the thread of its slot.
template <typename T>
__global__ void __launch_bounds__(kLossThreads)
    strided_backward_kernel(const __grid_constant__ SlotView grad,
                            const __grid_constant__ StridedInputs inputs, const T* normalizer, T eps,
                            const __grid_constant__ SlotView grad_pred, bool has_pred,
                            const __grid_constant__ SlotView grad_targets, bool has_targets) {
  begin_early();
  const T factor = -load_number<T>(grad, 0) / *normalizer;
  const T nan = T(NAN);
  const unsigned int step = gridDim.x * kLossThreads;
  const unsigned int start = blockIdx.x * kLossThreads + threadIdx.x;
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
  for (int64_t first = start - threadIdx.x % 32; first < targets; first += step) {
    const int64_t target = first + threadIdx.x % 32;
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

// Calls body(inputs) where the memory is packed and there are kernels for its dtypes; says whether it did.
template <typename Body>
bool with_packed_inputs(const JaggedProblem& problem, const Body& body) {
  if (!problem.offsets.packed || problem.offsets.dtype != DType::kInt64) return false;
  return with_packed_types(problem.pred, problem.targets, [&](auto pred_tag, auto target_tag) {
    body(PackedInputs<typename decltype(pred_tag)::type, typename decltype(target_tag)::type>(problem));
  });
}

// Calls body(math) with the arithmetic type, as a value.
template <typename Body>
void with_math(bool in_double, const Body& body) {
  in_double ? body(double{}) : body(float{});
}

}  // namespace

cudaError_t launch_jagged_giou_loss_forward(const JaggedProblem& problem, double eps, bool in_double,
                                            double* workspace, unsigned int* ticket, void* loss,
                                            void* normalizer, cudaStream_t stream) {
  const auto run = [&](auto math, const auto& inputs) {
    using T = decltype(math);
    launch(Start::kEarly, forward_kernel<T, std::decay_t<decltype(inputs)>>,
           loss_shape(std::max(problem.target_count, problem.images)), stream, inputs, static_cast<T>(eps),
           reinterpret_cast<LossSums*>(workspace), ticket, static_cast<T*>(loss),
           static_cast<T*>(normalizer));
  };
  const bool packed = with_packed_inputs(problem, [&](const auto& inputs) {
    using Inputs = std::decay_t<decltype(inputs)>;
    run(PackedMath<typename Inputs::Pred, typename Inputs::Target>{}, inputs);
  });
  if (!packed) with_math(in_double, [&](auto math) { run(math, StridedInputs(problem)); });
  return cudaGetLastError();
}

cudaError_t launch_jagged_giou_loss_backward(const SlotView& grad, const JaggedProblem& problem,
                                             const SlotView& normalizer, double eps, bool in_double,
                                             const SlotView* grad_pred, const SlotView* grad_targets,
                                             cudaStream_t stream) {
  const int64_t pred_slots = problem.images * problem.slots;
  const int64_t items = std::max(pred_slots, problem.target_count);
  if (items == 0) return cudaSuccess;
  const bool only_pred = grad_pred != nullptr && grad_targets == nullptr;
  const bool plain_grad = grad.dtype == (in_double ? DType::kFloat64 : DType::kFloat32);
  const bool packed =
      only_pred && plain_grad && with_packed_inputs(problem, [&](const auto& inputs) {
        using Inputs = std::decay_t<decltype(inputs)>;
        using T = PackedMath<typename Inputs::Pred, typename Inputs::Target>;
        const int64_t threads = (pred_slots + kGradientSlots - 1) / kGradientSlots;
        const LaunchShape shape(grid_size(threads, kLossThreads, kGradientBlocksPerSm), kLossThreads);
        launch(Start::kEarly, packed_backward_kernel<T, Inputs>, shape, stream,
               static_cast<const T*>(grad.data), inputs, static_cast<const T*>(normalizer.data),
               static_cast<T>(eps), static_cast<PackedBox<typename Inputs::Pred>*>(grad_pred->data));
      });
  if (packed) return cudaGetLastError();
  with_math(in_double, [&](auto math) {
    using T = decltype(math);
    launch(Start::kEarly, strided_backward_kernel<T>,
           LaunchShape(grid_size(items, kLossThreads, kGradientBlocksPerSm), kLossThreads), stream, grad,
           StridedInputs(problem), static_cast<const T*>(normalizer.data), static_cast<T>(eps),
           grad_pred != nullptr ? *grad_pred : SlotView{}, grad_pred != nullptr,
           grad_targets != nullptr ? *grad_targets : SlotView{}, grad_targets != nullptr);
  });
  return cudaGetLastError();
}

}  // namespace lensbox
