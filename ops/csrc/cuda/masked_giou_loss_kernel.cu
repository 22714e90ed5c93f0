// The fused masked GIoU loss: one launch forward, one backward.
//
// Most slots of a padded batch are padding, so the forward reads the targets once, and touches a prediction
// only where its target is valid. What limits it is how many things wait for each other: docs/loss_kernel.md.
// Sums are double and are added in an order that depends only on the launch configuration: results are
// repeatable bit by bit.
//
//   block sums --> workspace[block] --> the block that takes the last ticket adds them up in order and writes
//
// Two families of kernels share this plan: "packed" ones know both dtypes at compile time and need
// contiguous, aligned memory; "strided" ones read any dtype through any strides.

#include "early_start.cuh"
#include "loss_reduction.cuh"
#include "masked_giou_loss_kernel.h"
#include "memory.cuh"
#include "packed_types.cuh"

namespace lensbox {
namespace {

// Gradients need no ticket, so nothing is gained from fewer blocks.
constexpr int kGradientBlocksPerSm = 8;

// Slots a thread: forward, as many as 4 bytes of one coordinate each hold; backward.
template <typename Target>
constexpr int kPackedSlots = sizeof(Target) < 4 ? 4 / sizeof(Target) : 1;
constexpr int kGradientSlots = 2;

// What a thread loads at once: kSlots slots, 32 apart. A warp takes kSlots * 32 adjacent slots: loads are
// adjacent, and the boxes at the front of a sample fall to different threads, which compute them at the same
// time.
template <typename Pred, typename Target, int kSlots>
struct SlotGroup {
  PackedBox<Target> targets[kSlots];
  PackedBox<Pred> preds[kSlots];  // of valid slots
  bool valid[kSlots];

  static __device__ int64_t first_slot() {
    const int lane = threadIdx.x % 32;
    return (int64_t{blockIdx.x} * blockDim.x + threadIdx.x - lane) * kSlots + lane;
  }
  static __device__ int64_t slots_of_grid() { return int64_t{gridDim.x} * blockDim.x * kSlots; }

  // Every load is issued before the first is used.
  __device__ SlotGroup(const PackedBox<Pred>* pred, const PackedBox<Target>* target, int64_t first,
                       int64_t slots) {
#pragma unroll
    for (int k = 0; k < kSlots; ++k) {
      const int64_t slot = first + 32 * k;
      targets[k] = slot < slots ? target[slot] : PackedBox<Target>{};
    }
#pragma unroll
    for (int k = 0; k < kSlots; ++k) {
      valid[k] = to_math<PackedMath<Pred, Target>>(targets[k].y2) != 0;
      if (valid[k]) preds[k] = pred[first + 32 * k];
    }
  }
};

template <typename T, typename Pred, typename Target>
__global__ void __launch_bounds__(kLossThreads)
    packed_forward_kernel(const PackedBox<Pred>* pred, const PackedBox<Target>* target, T eps, int64_t slots,
                          LossSums* workspace, unsigned int* ticket, T* loss, T* normalizer) {
  constexpr int kSlots = kPackedSlots<Target>;
  using Group = SlotGroup<Pred, Target, kSlots>;
  begin_early();
  LossSums sums = {0, 0};
  for (int64_t first = Group::first_slot(); first < slots; first += Group::slots_of_grid()) {
    const Group group(pred, target, first, slots);
#pragma unroll
    for (int k = 0; k < kSlots; ++k) {
      if (!group.valid[k]) continue;
      const T value = giou(to_math<T>(group.preds[k]), to_math<T>(group.targets[k]), eps);
      sums.loss += static_cast<double>(T(1) - value);
      sums.weight += 1;
    }
  }
  finish_loss(sums, workspace, ticket, loss, normalizer);
}

// The weight of a slot: the one given, or 1 unless the target's y2 is 0.
template <typename T>
__device__ T slot_weight(const MaskedProblem& problem, int64_t slot) {
  if (problem.is_weighted) return load_number<T>(problem.weight, slot);
  return load_box<T>(problem.target, slot).y2 != T(0) ? T(1) : T(0);
}

// One thread takes one slot after another, a grid apart.
template <typename T>
__global__ void __launch_bounds__(kLossThreads)
    strided_forward_kernel(const __grid_constant__ MaskedProblem problem, T eps, LossSums* workspace,
                           unsigned int* ticket, T* loss, T* normalizer) {
  LossSums sums = {0, 0};
  const int64_t step = int64_t{gridDim.x} * kLossThreads;
  for (int64_t slot = int64_t{blockIdx.x} * kLossThreads + threadIdx.x; slot < problem.slots; slot += step) {
    const T w = slot_weight<T>(problem, slot);
    if (w == T(0)) continue;
    const T slot_loss = T(1) - giou(load_box<T>(problem.pred, slot), load_box<T>(problem.target, slot), eps);
    sums.loss += static_cast<double>(w) * static_cast<double>(slot_loss);
    sums.weight += static_cast<double>(w);
  }
  finish_loss(sums, workspace, ticket, loss, normalizer);
}

// d loss / d box_i = -w_i / D  d giou_i / d box_i, with D the normalizer. Every slot is written, padding
// first: it waits for no prediction.
template <typename T, typename Pred, typename Target>
__global__ void __launch_bounds__(kLossThreads)
    packed_backward_kernel(const T* grad, const PackedBox<Pred>* pred, const PackedBox<Target>* target,
                           const T* normalizer, T eps, int64_t slots, PackedBox<Pred>* grad_pred) {
  using Group = SlotGroup<Pred, Target, kGradientSlots>;
  begin_early();
  const T upstream = *grad, divisor = *normalizer;
  for (int64_t first = Group::first_slot(); first < slots; first += Group::slots_of_grid()) {
    const Group group(pred, target, first, slots);
#pragma unroll
    for (int k = 0; k < kGradientSlots; ++k) {
      const int64_t slot = first + 32 * k;
      if (!group.valid[k] && slot < slots) grad_pred[slot] = PackedBox<Pred>{};
    }
#pragma unroll
    for (int k = 0; k < kGradientSlots; ++k) {
      if (!group.valid[k]) continue;
      const Box<T> gradient = giou_gradient(to_math<T>(group.preds[k]), to_math<T>(group.targets[k]), eps);
      grad_pred[first + 32 * k] = pack_gradient<Pred>(scaled(gradient, -upstream / divisor));
    }
  }
}

// The outputs of the strided backward; has_... says which are wanted.
struct Gradients {
  SlotView pred, target, weight;
  bool has_pred, has_target, has_weight;
};

// As above, for all gradients:  d loss / d w_i = ((1 - giou_i) - [sum(w) > 1] loss) / D
template <typename T>
__global__ void __launch_bounds__(kLossThreads)
    strided_backward_kernel(const __grid_constant__ MaskedProblem problem,
                            const __grid_constant__ SlotView grad, const T* loss, const T* normalizer, T eps,
                            const __grid_constant__ Gradients out) {
  const T per_weight = load_number<T>(grad, 0) / *normalizer;
  const T loss_share = *normalizer > T(1) ? *loss : T(0);
  const int64_t step = int64_t{gridDim.x} * kLossThreads;
  for (int64_t slot = int64_t{blockIdx.x} * kLossThreads + threadIdx.x; slot < problem.slots; slot += step) {
    const T w = slot_weight<T>(problem, slot);
    Box<T> by_pred = {0, 0, 0, 0}, by_target = {0, 0, 0, 0};
    if (w != T(0) || out.has_weight) {
      const Box<T> predicted = load_box<T>(problem.pred, slot);
      const Box<T> wanted = load_box<T>(problem.target, slot);
      if (w != T(0)) {
        by_pred = scaled(giou_gradient(predicted, wanted, eps), -per_weight * w);
        by_target = scaled(giou_gradient(wanted, predicted, eps), -per_weight * w);
      }
      if (out.has_weight) {
        store_number(out.weight, slot, per_weight * (T(1) - giou(predicted, wanted, eps) - loss_share));
      }
    }
    if (out.has_pred) store_gradient(out.pred, slot, by_pred);
    if (out.has_target) store_gradient(out.target, slot, by_target);
  }
}

// Calls body(math) with the arithmetic type of the problem, as a value.
template <typename Body>
void with_math(const MaskedProblem& problem, const Body& body) {
  problem.in_double ? body(double{}) : body(float{});
}

}  // namespace

cudaError_t launch_masked_giou_loss_forward(const MaskedProblem& problem, double* workspace,
                                            unsigned int* ticket, void* loss, void* normalizer,
                                            cudaStream_t stream) {
  auto* sums = reinterpret_cast<LossSums*>(workspace);
  const bool packed =
      !problem.is_weighted &&
      with_packed_types(problem.pred, problem.target, [&](auto pred_tag, auto target_tag) {
        using Pred = typename decltype(pred_tag)::type;
        using Target = typename decltype(target_tag)::type;
        using T = PackedMath<Pred, Target>;
        const int64_t threads = (problem.slots + kPackedSlots<Target> - 1) / kPackedSlots<Target>;
        launch_early(packed_forward_kernel<T, Pred, Target>, loss_grid_size(threads), kLossThreads, stream,
                     static_cast<const PackedBox<Pred>*>(problem.pred.data),
                     static_cast<const PackedBox<Target>*>(problem.target.data), static_cast<T>(problem.eps),
                     problem.slots, sums, ticket, static_cast<T*>(loss), static_cast<T*>(normalizer));
      });
  if (packed) return cudaGetLastError();
  with_math(problem, [&](auto math) {
    using T = decltype(math);
    strided_forward_kernel<T><<<loss_grid_size(problem.slots), kLossThreads, 0, stream>>>(
        problem, static_cast<T>(problem.eps), sums, ticket, static_cast<T*>(loss),
        static_cast<T*>(normalizer));
  });
  return cudaGetLastError();
}

cudaError_t launch_masked_giou_loss_backward(const MaskedProblem& problem, const SlotView& grad,
                                             const void* loss, const void* normalizer,
                                             const MaskedGradients& out, cudaStream_t stream) {
  if (problem.slots == 0) return cudaSuccess;
  const bool only_pred = out.pred != nullptr && out.target == nullptr && out.weight == nullptr;
  const bool plain_grad = grad.dtype == (problem.in_double ? DType::kFloat64 : DType::kFloat32);
  const bool packed =
      !problem.is_weighted && only_pred && plain_grad &&
      with_packed_types(problem.pred, problem.target, [&](auto pred_tag, auto target_tag) {
        using Pred = typename decltype(pred_tag)::type;
        using Target = typename decltype(target_tag)::type;
        using T = PackedMath<Pred, Target>;
        const int64_t threads = (problem.slots + kGradientSlots - 1) / kGradientSlots;
        launch_early(packed_backward_kernel<T, Pred, Target>,
                     grid_size(threads, kLossThreads, kGradientBlocksPerSm), kLossThreads, stream,
                     static_cast<const T*>(grad.data), static_cast<const PackedBox<Pred>*>(problem.pred.data),
                     static_cast<const PackedBox<Target>*>(problem.target.data),
                     static_cast<const T*>(normalizer), static_cast<T>(problem.eps), problem.slots,
                     static_cast<PackedBox<Pred>*>(out.pred->data));
      });
  if (packed) return cudaGetLastError();
  const auto view_or_empty = [](const SlotView* view) { return view != nullptr ? *view : SlotView{}; };
  const Gradients gradients = {view_or_empty(out.pred), view_or_empty(out.target), view_or_empty(out.weight),
                               out.pred != nullptr,     out.target != nullptr,     out.weight != nullptr};
  with_math(problem, [&](auto math) {
    using T = decltype(math);
    strided_backward_kernel<T>
        <<<grid_size(problem.slots, kLossThreads, kGradientBlocksPerSm), kLossThreads, 0, stream>>>(
            problem, grad, static_cast<const T*>(loss), static_cast<const T*>(normalizer),
            static_cast<T>(problem.eps), gradients);
  });
  return cudaGetLastError();
}

}  // namespace lensbox
