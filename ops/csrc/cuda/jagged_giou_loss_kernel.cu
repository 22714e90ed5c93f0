// The GIoU loss of padded predictions against packed targets: one launch forward, one backward.
//
// The forward gives a thread to each target, so padding costs nothing; a warp finds the images of its 32
// targets together. The host cannot check the offsets without waiting for the device. So the threads check
// them, and an invalid offset makes the loss NaN.
//
// Like the padded loss, this loss has two families of kernels: "packed" kernels know all dtypes at compile
// time, "strided" kernels read any dtype through any strides.

#include <cmath>

#include "../problems.h"
#include "device.cuh"
#include "launch.h"
#include "launchers.h"
#include "loss_reduction.cuh"
#include "memory.cuh"

namespace lensbox {
namespace {

// The boxes and offsets of a problem: packed with int64 offsets, or of any dtypes and strides.
template <typename Pairs>
struct JaggedInputs : Pairs {
  SlotView offsets;
  int64_t images, slots, target_count;

  explicit JaggedInputs(const JaggedProblem& problem)
      : Pairs(problem.pred, problem.targets),
        offsets(problem.offsets),
        images(problem.images),
        slots(problem.slots),
        target_count(problem.target_count) {}

  __device__ int64_t slot_count() const { return images * slots; }
  __device__ int64_t offset(int64_t image) const {
    if constexpr (!std::is_same_v<Pairs, StridedPairs>) {
      return static_cast<const int64_t*>(offsets.data)[image];
    }
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

// Return the last image that starts at or before a warp's first target. All lanes search together: each round
// they look at 32 offsets and keep one of the 33 parts between them.
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

// Return the prediction slot of the lane's target, first_target + lane; -1 if the offsets are invalid or
// there is no such target. All lanes of a warp must call this.
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

// Each thread takes targets in a grid-stride loop, and images in another, whose offsets the thread checks.
template <typename T, typename Inputs>
__global__ void __launch_bounds__(kLossThreads)
    forward_kernel(const __grid_constant__ Inputs inputs, T eps, LossSums* workspace, unsigned int* ticket,
                   T* loss, double* normalizer) {
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

// Return slot / slots, for slots > 0; the 32-bit division is many times cheaper.
__device__ __forceinline__ int64_t image_of_slot(int64_t slot, int64_t slots) {
  if ((slot | slots) >> 32 == 0) return static_cast<uint32_t>(slot) / static_cast<uint32_t>(slots);
  return slot / slots;
}

// The values that a thread of the packed backward loads at once: kGradientSlots slots, 32 apart.
template <typename InputsType>
struct SlotGroup {
  using Inputs = InputsType;
  using Pred = typename Inputs::Pred;

  PackedBox<typename Inputs::Target> targets[kGradientSlots];
  PackedBox<Pred> preds[kGradientSlots];
  bool valid[kGradientSlots], broken[kGradientSlots];  // broken: the image's offsets break the rules

  __device__ SlotGroup(const Inputs& inputs, int64_t first) {
    const int64_t slots = inputs.slot_count();
    Segment segments[kGradientSlots];
    int64_t positions[kGradientSlots];
#pragma unroll
    for (int k = 0; k < kGradientSlots; ++k) {
      const int64_t slot = min(first + 32 * k, slots - 1);
      const int64_t image = image_of_slot(slot, inputs.slots);
      positions[k] = slot - image * inputs.slots;
      bool sound;
      segments[k] = segment_of(inputs, image, sound);
      broken[k] = !sound;
    }
#pragma unroll
    for (int k = 0; k < kGradientSlots; ++k) {
      const int64_t slot = first + 32 * k;
      valid[k] = slot < slots && !broken[k] && positions[k] < segments[k].count;
      if (!valid[k]) continue;
      preds[k] = inputs.preds[slot];
      targets[k] = inputs.targets[segments[k].first + positions[k]];
    }
  }

  __device__ void write_padding(const Inputs& inputs, int64_t first, PackedBox<Pred>* grad_pred) const {
    const float nan = NAN;
#pragma unroll
    for (int k = 0; k < kGradientSlots; ++k) {
      const int64_t slot = first + 32 * k;
      if (valid[k] || slot >= inputs.slot_count()) continue;
      grad_pred[slot] = broken[k] ? pack_box<Pred>(Box<float>{nan, nan, nan, nan}) : PackedBox<Pred>{};
    }
  }

  __device__ float weight(int /*k*/) const { return 1.0f; }
  __device__ Box<float> pred(int k) const { return to_math<float>(preds[k]); }
  __device__ Box<float> target(int k) const { return to_math<float>(targets[k]); }
};

// Compute any of the gradients, through any strides. Threads walk the prediction slots, then the targets:
// each gradient is written once, by the thread of its slot.
template <typename T>
__global__ void __launch_bounds__(kLossThreads)
    strided_backward_kernel(const __grid_constant__ SlotView grad,
                            const __grid_constant__ JaggedInputs<StridedPairs> inputs,
                            const double* normalizer, T eps, const __grid_constant__ SlotView grad_pred,
                            const __grid_constant__ SlotView grad_targets) {
  begin_early();
  const T factor = -load_number<T>(grad, 0) / static_cast<T>(*normalizer);
  const T nan = T(NAN);
  const unsigned int step = gridDim.x * kLossThreads;
  const unsigned int start = blockIdx.x * kLossThreads + threadIdx.x;
  const int64_t pred_slots = grad_pred.exists() ? inputs.images * inputs.slots : 0;
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
  const int64_t targets = grad_targets.exists() ? inputs.target_count : 0;
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

// Call body(inputs) if the memory is packed and has specialised kernels for its dtypes. Return whether body
// was called.
template <typename Body>
bool with_packed_inputs(const JaggedProblem& problem, const Body& body) {
  if (!problem.offsets.packed || problem.offsets.dtype != DType::kInt64) return false;
  return with_packed_types(problem.pred, problem.targets, [&](auto pred_tag, auto target_tag) {
    body(JaggedInputs<PackedPairs<typename decltype(pred_tag)::type, typename decltype(target_tag)::type>>(
        problem));
  });
}

}  // namespace

cudaError_t lensbox_cuda_jagged_giou_loss_forward(const JaggedProblem& problem, void* loss,
                                                  double* normalizer, void* workspace, cudaStream_t stream) {
  auto* sums = static_cast<LossSums*>(behind_spare(workspace));
  unsigned int* ticket = nullptr;
  LENSBOX_RETURN_IF_FAILED(take_tickets(stream, workspace, &ticket));
  const auto run = [&](auto math, const auto& inputs) {
    using T = decltype(math);
    launch(Start::kEarly, forward_kernel<T, std::decay_t<decltype(inputs)>>,
           loss_shape(std::max(problem.target_count, problem.images)), stream, inputs,
           static_cast<T>(problem.eps), sums, ticket, static_cast<T*>(loss), normalizer);
  };
  if (!with_packed_inputs(problem, [&](const auto& inputs) { run(float{}, inputs); })) {
    with_math(problem.in_double, [&](auto math) { run(math, JaggedInputs<StridedPairs>(problem)); });
  }
  return cudaGetLastError();
}

cudaError_t lensbox_cuda_jagged_giou_loss_backward(const JaggedProblem& problem, const SlotView& grad,
                                                   const double* normalizer, const SlotView& grad_pred,
                                                   const SlotView& grad_targets, cudaStream_t stream) {
  const int64_t pred_slots = problem.images * problem.slots;
  const int64_t items = std::max(pred_slots, problem.target_count);
  if (items == 0) return cudaSuccess;
  const bool only_pred = grad_pred.exists() && !grad_targets.exists();
  const bool packed =
      only_pred && grad.dtype == DType::kFloat32 && with_packed_inputs(problem, [&](const auto& inputs) {
        launch_packed_backward<SlotGroup<std::decay_t<decltype(inputs)>>>(
            inputs, pred_slots, grad.data, normalizer, problem.eps, grad_pred, stream);
      });
  if (packed) return cudaGetLastError();
  with_math(problem.in_double, [&](auto math) {
    using T = decltype(math);
    launch(Start::kEarly, strided_backward_kernel<T>,
           LaunchShape(grid_size(items, kLossThreads, kGradientBlocksPerSm), kLossThreads), stream, grad,
           JaggedInputs<StridedPairs>(problem), normalizer, static_cast<T>(problem.eps), grad_pred,
           grad_targets);
  });
  return cudaGetLastError();
}

}  // namespace lensbox
