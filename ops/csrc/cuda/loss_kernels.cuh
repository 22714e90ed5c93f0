// The kernels of both losses. They walk the slots of the predictions; a source tells which target and which
// weight a slot has. Each source has two families of kernels: "packed" ones know all dtypes at compile time
// and need contiguous, aligned memory; "strided" ones read any dtype through any strides.
//
//   Packed source    Pred: the dtype of predictions. slot_count(). Group<kSlots>: the values of kSlots slots,
//                    32 apart, that a thread loads at once. kForwardSlots: how many a thread of the forward
//                    takes. for_forward(): the source whose starts() slots the forward's threads begin at;
//                    first_of(start) is such a slot, and goes_on(group, first) moves to the next one
//   Strided source   slot_count(), target_count(). find<T>(slot) returns a Slot<T>
//   both             check(sums), of each thread; is_broken(), for which a block's threads come together
#pragma once

#include "loss_reduction.cuh"
#include "memory.cuh"

namespace lensbox {

// Gradients count no arrivals, so fewer blocks would save nothing.
constexpr int kGradientBlocksPerSm = 8;
constexpr int kGradientSlots = 2;  // a thread, 32 apart, in packed memory

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

inline int64_t threads_for(int64_t slots, int slots_a_thread) {
  return (slots + slots_a_thread - 1) / slots_a_thread;
}

template <typename Source>
__global__ void __launch_bounds__(kLossThreads)
    packed_forward_kernel(const __grid_constant__ Source source, float eps, LossSums* workspace,
                          unsigned int* arrivals, float* loss, double* normalizer) {
  constexpr int kSlots = Source::kForwardSlots;
  begin_early();
  LossSums sums = {0, 0};
  for (int64_t start = first_slot<kSlots>(); start < source.starts(); start += slots_of_grid<kSlots>()) {
    int64_t first = source.first_of(start);
    bool goes_on;
    do {
      const typename Source::template Group<kSlots> group(source, first);
#pragma unroll
      for (int k = 0; k < kSlots; ++k) {
        if (group.is_broken(k)) sums.loss = NAN;
        if (!group.valid[k]) continue;
        const double weight = static_cast<double>(group.weight(k));
        sums.loss += weight * static_cast<double>(1.0f - giou(group.pred(k), group.target(k), eps));
        sums.weight += weight;
      }
      goes_on = source.goes_on(group, first);
    } while (goes_on);
  }
  source.check(sums);
  finish_loss(sums, workspace, arrivals, loss, normalizer);
}

// Write zeros, or NaN, to the slots without a valid pair. Call this before any code waits for a prediction.
template <typename Group, typename Source>
__device__ void write_padding(const Group& group, const Source& source, int64_t first,
                              PackedBox<typename Source::Pred>* grad_pred) {
#pragma unroll
  for (int k = 0; k < Group::kSlots; ++k) {
    const float filling = group.is_broken(k) ? NAN : 0.0f;
    const int64_t slot = first + 32 * k;
    if (group.valid[k] || slot >= source.slot_count()) continue;
    grad_pred[slot] = pack_box<typename Source::Pred>(Box<float>{filling, filling, filling, filling});
  }
}

// Compute the gradient of the predictions alone: d loss / d box_i = -w_i / D  d giou_i / d box_i, with D the
// normalizer. Every slot is written. If `grad` has no data, the gradient of the loss is 1.
template <typename Source>
__global__ void __launch_bounds__(kLossThreads)
    packed_backward_kernel(const float* grad, const __grid_constant__ Source source, const double* normalizer,
                           float eps, PackedBox<typename Source::Pred>* grad_pred) {
  begin_early();
  const float upstream = grad == nullptr ? 1.0f : *grad;
  const double divisor = *normalizer;
  for (int64_t first = first_slot<kGradientSlots>(); first < source.slot_count();
       first += slots_of_grid<kGradientSlots>()) {
    const typename Source::template Group<kGradientSlots> group(source, first);
    write_padding(group, source, first, grad_pred);
    const LossScale<float> scale(-upstream, divisor);
#pragma unroll
    for (int k = 0; k < kGradientSlots; ++k) {
      if (!group.valid[k]) continue;
      const Box<float> gradient = giou_gradient(group.pred(k), group.target(k), eps);
      grad_pred[first + 32 * k] =
          pack_box<typename Source::Pred>(scaled(gradient, scale.of(group.weight(k))));
    }
  }
}

// What a slot has, of any dtype.
template <typename T>
struct Slot {
  int64_t target;          // its slot among the targets
  T weight;                // 0: padding
  bool is_broken = false;  // its gradient, and the loss, are NaN
};

// One thread takes one slot after another, a grid apart.
template <typename T, typename Source>
__global__ void __launch_bounds__(kLossThreads)
    strided_forward_kernel(const __grid_constant__ Source source, T eps, LossSums* workspace,
                           unsigned int* arrivals, T* loss, double* normalizer) {
  begin_early();
  LossSums sums = {0, 0};
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t slot = first_slot<1>(); slot < source.slot_count(); slot += step) {
    const Slot<T> found = source.template find<T>(slot);
    if (found.is_broken) sums.loss = NAN;
    if (found.weight == T(0)) continue;
    const T slot_loss =
        T(1) - giou(load_box<T>(source.pred, slot), load_box<T>(source.target, found.target), eps);
    sums.loss += static_cast<double>(found.weight) * static_cast<double>(slot_loss);
    sums.weight += static_cast<double>(found.weight);
  }
  source.check(sums);
  finish_loss(sums, workspace, arrivals, loss, normalizer);
}

// Compute any of the gradients:  d loss / d w_i = ((1 - giou_i) - [sum(w) > 1] loss) / D
template <typename T, typename Source>
__global__ void __launch_bounds__(kLossThreads)
    strided_backward_kernel(const __grid_constant__ Source source, const __grid_constant__ SlotView grad,
                            const T* loss, const double* normalizer, T eps,
                            const __grid_constant__ MaskedGradients out) {
  begin_early();
  const T upstream = !grad.exists() ? T(1) : load_number<T>(grad, 0);
  const LossScale<T> scale(upstream, *normalizer);
  const T per_weight = scale.of(T(1));
  const T loss_share = out.weight.exists() && *normalizer > 1 ? *loss : T(0);
  const Box<T> nan = {T(NAN), T(NAN), T(NAN), T(NAN)};
  const int64_t start = first_slot<1>(), step = int64_t{gridDim.x} * blockDim.x;
  // Where a rule is broken, slots may claim a target twice, or never.
  const bool no_targets = out.target.exists() && source.is_broken();
  for (int64_t target = start; no_targets && target < source.target_count(); target += step) {
    store_box(out.target, target, nan);
  }
  for (int64_t slot = start; slot < source.slot_count(); slot += step) {
    const Slot<T> found = source.template find<T>(slot);
    Box<T> predicted = {0, 0, 0, 0}, wanted = {0, 0, 0, 0};
    if (found.weight != T(0) || out.weight.exists()) {
      predicted = load_box<T>(source.pred, slot);
      wanted = load_box<T>(source.target, found.target);
    }
    if (out.weight.exists()) {
      store_number(out.weight, slot, per_weight * (T(1) - giou(predicted, wanted, eps) - loss_share));
    }
    const auto gradient = [&](const Box<T>& of, const Box<T>& against) {
      if (found.is_broken) return nan;
      return found.weight != T(0) ? scaled(giou_gradient(of, against, eps), -scale.of(found.weight))
                                  : Box<T>{0, 0, 0, 0};
    };
    if (out.pred.exists()) store_box(out.pred, slot, gradient(predicted, wanted));
    if (out.target.exists() && !no_targets && found.target >= 0) {
      store_box(out.target, found.target, gradient(wanted, predicted));
    }
  }
}

// Launch a loss. with_packed_source(problem, body) calls body(source) if a packed source exists, and returns
// whether it did; strided_source(problem) returns the other one.
template <typename Problem>
cudaError_t launch_forward(const Problem& problem, void* loss, double* normalizer, void* workspace,
                           cudaStream_t stream) {
  auto* sums = static_cast<LossSums*>(behind_spare(workspace));
  unsigned int* arrivals = nullptr;
  LENSBOX_RETURN_IF_FAILED(take_arrival_counters(stream, workspace, &arrivals));
  const bool is_packed = with_packed_source(problem, [&](const auto& found) {
    using Source = std::decay_t<decltype(found)>;
    const Source source = found.for_forward();
    launch(Start::kProgrammatic, packed_forward_kernel<Source>,
           loss_shape(threads_for(source.starts(), Source::kForwardSlots)), stream, source,
           static_cast<float>(problem.eps), sums, arrivals, static_cast<float*>(loss), normalizer);
  });
  if (is_packed) return cudaGetLastError();
  with_math(problem.in_double, [&](auto math) {
    using T = decltype(math);
    const auto source = strided_source(problem);
    launch(Start::kProgrammatic, strided_forward_kernel<T, std::decay_t<decltype(source)>>,
           loss_shape(source.slot_count()), stream, source, static_cast<T>(problem.eps), sums, arrivals,
           static_cast<T*>(loss), normalizer);
  });
  return cudaGetLastError();
}

template <typename Problem>
cudaError_t launch_backward(const Problem& problem, const SlotView& grad, const void* loss,
                            const double* normalizer, const MaskedGradients& out, cudaStream_t stream) {
  const auto strided = strided_source(problem);
  const int64_t slots = strided.slot_count();
  const auto shape_for = [](int64_t threads) {
    return LaunchShape(grid_size(threads, kLossThreads, kGradientBlocksPerSm), kLossThreads);
  };
  const bool only_pred = out.pred.exists() && !out.target.exists() && !out.weight.exists();
  const bool plain_grad = !grad.exists() || grad.dtype == DType::kFloat32;
  const bool is_packed =
      only_pred && plain_grad && with_packed_source(problem, [&](const auto& source) {
        using Source = std::decay_t<decltype(source)>;
        launch(Start::kProgrammatic, packed_backward_kernel<Source>,
               shape_for(threads_for(slots, kGradientSlots)), stream, static_cast<const float*>(grad.data),
               source, normalizer, static_cast<float>(problem.eps),
               static_cast<PackedBox<typename Source::Pred>*>(out.pred.data));
      });
  if (is_packed) return cudaGetLastError();
  with_math(problem.in_double, [&](auto math) {
    using T = decltype(math);
    launch(Start::kProgrammatic, strided_backward_kernel<T, std::decay_t<decltype(strided)>>,
           shape_for(std::max(slots, strided.target_count())), stream, strided, grad,
           static_cast<const T*>(loss), normalizer, static_cast<T>(problem.eps), out);
  });
  return cudaGetLastError();
}

}  // namespace lensbox
