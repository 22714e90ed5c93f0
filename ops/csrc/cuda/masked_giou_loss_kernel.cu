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
__device__ T slot_weight(const SlotView& target, const SlotView& weight, bool weighted, int64_t slot) {
  if (weighted) return load_number<T>(weight, slot);
  return load_box<T>(target, slot).y2 != T(0) ? T(1) : T(0);
}

// One thread takes one slot after another, a grid apart.
template <typename T>
__global__ void __launch_bounds__(kLossThreads)
    strided_forward_kernel(const __grid_constant__ SlotView pred, const __grid_constant__ SlotView target,
                           const __grid_constant__ SlotView weight, bool weighted, T eps, int64_t slots,
                           LossSums* workspace, unsigned int* ticket, T* loss, T* normalizer) {
  LossSums sums = {0, 0};
  const int64_t step = int64_t{gridDim.x} * kLossThreads;
  for (int64_t slot = int64_t{blockIdx.x} * kLossThreads + threadIdx.x; slot < slots; slot += step) {
    const T w = slot_weight<T>(target, weight, weighted, slot);
    if (w == T(0)) continue;
    const T slot_loss = T(1) - giou(load_box<T>(pred, slot), load_box<T>(target, slot), eps);
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
    strided_backward_kernel(const __grid_constant__ SlotView grad, const __grid_constant__ SlotView pred,
                            const __grid_constant__ SlotView target, const __grid_constant__ SlotView weight,
                            bool weighted, const T* loss, const T* normalizer, T eps, int64_t slots,
                            const __grid_constant__ Gradients out) {
  const T per_weight = load_number<T>(grad, 0) / *normalizer;
  const T loss_share = *normalizer > T(1) ? *loss : T(0);
  const int64_t step = int64_t{gridDim.x} * kLossThreads;
  for (int64_t slot = int64_t{blockIdx.x} * kLossThreads + threadIdx.x; slot < slots; slot += step) {
    const T w = slot_weight<T>(target, weight, weighted, slot);
    Box<T> by_pred = {0, 0, 0, 0}, by_target = {0, 0, 0, 0};
    if (w != T(0) || out.has_weight) {
      const Box<T> predicted = load_box<T>(pred, slot);
      const Box<T> wanted = load_box<T>(target, slot);
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

template <typename T>
void strided_forward(const SlotView& pred, const SlotView& target, const SlotView* weight, double eps,
                     int64_t slots, LossSums* workspace, unsigned int* ticket, void* loss, void* normalizer,
                     cudaStream_t stream) {
  strided_forward_kernel<T><<<loss_grid_size(slots), kLossThreads, 0, stream>>>(
      pred, target, weight != nullptr ? *weight : SlotView{}, weight != nullptr, static_cast<T>(eps), slots,
      workspace, ticket, static_cast<T*>(loss), static_cast<T*>(normalizer));
}

template <typename T>
void strided_backward(const SlotView& grad, const SlotView& pred, const SlotView& target,
                      const SlotView* weight, const SlotView& loss, const SlotView& normalizer, double eps,
                      int64_t slots, const Gradients& out, cudaStream_t stream) {
  strided_backward_kernel<T>
      <<<grid_size(slots, kLossThreads, kGradientBlocksPerSm), kLossThreads, 0, stream>>>(
          grad, pred, target, weight != nullptr ? *weight : SlotView{}, weight != nullptr,
          static_cast<const T*>(loss.data), static_cast<const T*>(normalizer.data), static_cast<T>(eps),
          slots, out);
}

}  // namespace

cudaError_t launch_masked_giou_loss_forward(const SlotView& pred, const SlotView& target,
                                            const SlotView* weight, double eps, bool in_double, int64_t slots,
                                            double* workspace, unsigned int* ticket, void* loss,
                                            void* normalizer, cudaStream_t stream) {
  auto* sums = reinterpret_cast<LossSums*>(workspace);
  const bool packed =
      weight == nullptr && with_packed_types(pred, target, [&](auto pred_tag, auto target_tag) {
        using Pred = typename decltype(pred_tag)::type;
        using Target = typename decltype(target_tag)::type;
        using T = PackedMath<Pred, Target>;
        const int64_t threads = (slots + kPackedSlots<Target> - 1) / kPackedSlots<Target>;
        launch_early(packed_forward_kernel<T, Pred, Target>, loss_grid_size(threads), kLossThreads, stream,
                     static_cast<const PackedBox<Pred>*>(pred.data),
                     static_cast<const PackedBox<Target>*>(target.data), static_cast<T>(eps), slots, sums,
                     ticket, static_cast<T*>(loss), static_cast<T*>(normalizer));
      });
  if (!packed) {
    const auto launch = in_double ? strided_forward<double> : strided_forward<float>;
    launch(pred, target, weight, eps, slots, sums, ticket, loss, normalizer, stream);
  }
  return cudaGetLastError();
}

cudaError_t launch_masked_giou_loss_backward(const SlotView& grad, const SlotView& pred,
                                             const SlotView& target, const SlotView* weight,
                                             const SlotView& loss, const SlotView& normalizer, double eps,
                                             bool in_double, int64_t slots, const SlotView* grad_pred,
                                             const SlotView* grad_target, const SlotView* grad_weight,
                                             cudaStream_t stream) {
  if (slots == 0) return cudaSuccess;
  const bool only_pred = grad_pred != nullptr && grad_target == nullptr && grad_weight == nullptr;
  const bool plain_grad = grad.dtype == (in_double ? DType::kFloat64 : DType::kFloat32);
  const bool packed =
      weight == nullptr && only_pred && plain_grad &&
      with_packed_types(pred, target, [&](auto pred_tag, auto target_tag) {
        using Pred = typename decltype(pred_tag)::type;
        using Target = typename decltype(target_tag)::type;
        using T = PackedMath<Pred, Target>;
        const int64_t threads = (slots + kGradientSlots - 1) / kGradientSlots;
        launch_early(packed_backward_kernel<T, Pred, Target>,
                     grid_size(threads, kLossThreads, kGradientBlocksPerSm), kLossThreads, stream,
                     static_cast<const T*>(grad.data), static_cast<const PackedBox<Pred>*>(pred.data),
                     static_cast<const PackedBox<Target>*>(target.data),
                     static_cast<const T*>(normalizer.data), static_cast<T>(eps), slots,
                     static_cast<PackedBox<Pred>*>(grad_pred->data));
      });
  if (!packed) {
    const auto view_or_empty = [](const SlotView* view) { return view != nullptr ? *view : SlotView{}; };
    const Gradients out = {view_or_empty(grad_pred), view_or_empty(grad_target), view_or_empty(grad_weight),
                           grad_pred != nullptr,     grad_target != nullptr,     grad_weight != nullptr};
    const auto launch = in_double ? strided_backward<double> : strided_backward<float>;
    launch(grad, pred, target, weight, loss, normalizer, eps, slots, out, stream);
  }
  return cudaGetLastError();
}

}  // namespace lensbox
