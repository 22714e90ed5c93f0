// The fused masked GIoU loss: one launch forward and one backward, or one launch for both if the batch is
// small enough.
//
// Most slots of a padded batch are padding. So the forward reads every target once, and reads a prediction
// only if its target is valid. With weights the forward reads every weight, and reads both boxes only if the
// weight is not 0. The chain of dependent steps limits its speed: docs/loss_kernel.md. Sums are double and
// are added in an order that depends only on the launch configuration, so results are repeatable to the bit.
//
//   block sums --> workspace[block] --> the block that takes the last ticket adds them up in order and writes
//
// Two families of kernels share this plan: "packed" ones know all dtypes at compile time and need contiguous,
// aligned memory; "strided" ones read any dtype through any strides.

#include <optional>

#include "device.cuh"
#include "launch.h"
#include "launchers.h"
#include "loss_reduction.cuh"
#include "memory.cuh"

namespace lensbox {
namespace {

// Loss and gradient in one launch: a multiprocessor of any GPU runs this number of blocks at the same time.
constexpr int kFusedBlocksPerSm = 3;

// The inputs of the packed kernels. Weight is float, or void without weights.
template <typename PredType, typename TargetType, typename Weight>
struct PackedInputs : PackedPairs<PredType, TargetType> {
  static constexpr bool is_weighted = !std::is_void_v<Weight>;

  const Weight* weights;
  int64_t slots;

  explicit PackedInputs(const MaskedProblem& problem)
      : PackedPairs<PredType, TargetType>(problem.pred, problem.target),
        weights(static_cast<const Weight*>(problem.weight.data)),
        slots(problem.slots) {}

  __device__ int64_t slot_count() const { return slots; }
};

// Slots of a thread. Forward: four weights, or as many slots as have one coordinate in 4 bytes. Forward and
// backward at once: as many slots as a thread can keep gradients of.
template <typename Inputs>
constexpr int kForwardSlots =
    Inputs::is_weighted ? 4 : (sizeof(typename Inputs::Target) < 4 ? 4 / sizeof(typename Inputs::Target) : 1);
constexpr int kFusedSlots = 4;

// The values that a thread loads at once: kSlots slots, 32 apart.
template <typename InputsType, int kSlots>
struct SlotGroup {
  using Inputs = InputsType;
  using Pred = typename Inputs::Pred;
  using Target = typename Inputs::Target;

  float weights[kSlots];  // if the problem has weights
  PackedBox<Target> targets[kSlots];
  PackedBox<Pred> preds[kSlots];  // of valid slots only; with weights, the same holds for the targets
  bool valid[kSlots];

  // Issue all loads that tell which slots are valid before the first loaded value is used.
  __device__ SlotGroup(const Inputs& inputs, int64_t first) {
#pragma unroll
    for (int k = 0; k < kSlots; ++k) {
      const int64_t slot = first + 32 * k;
      if constexpr (Inputs::is_weighted) {
        weights[k] = slot < inputs.slots ? inputs.weights[slot] : 0.0f;
      } else {
        targets[k] = slot < inputs.slots ? inputs.targets[slot] : PackedBox<Target>{};
      }
    }
#pragma unroll
    for (int k = 0; k < kSlots; ++k) {
      valid[k] = (Inputs::is_weighted ? weights[k] : to_math<float>(targets[k].y2)) != 0;
      if (!valid[k]) continue;
      preds[k] = inputs.preds[first + 32 * k];
      if constexpr (Inputs::is_weighted) targets[k] = inputs.targets[first + 32 * k];
    }
  }

  // Call this before any code waits for a prediction.
  __device__ void write_padding(const Inputs& inputs, int64_t first, PackedBox<Pred>* grad_pred) const {
#pragma unroll
    for (int k = 0; k < kSlots; ++k) {
      const int64_t slot = first + 32 * k;
      if (!valid[k] && slot < inputs.slots) grad_pred[slot] = PackedBox<Pred>{};
    }
  }

  __device__ float weight(int k) const { return Inputs::is_weighted ? weights[k] : 1.0f; }
  __device__ Box<float> pred(int k) const { return to_math<float>(preds[k]); }
  __device__ Box<float> target(int k) const { return to_math<float>(targets[k]); }
};

template <typename Inputs>
__global__ void __launch_bounds__(kLossThreads)
    packed_forward_kernel(const __grid_constant__ Inputs inputs, float eps, LossSums* workspace,
                          unsigned int* ticket, float* loss, double* normalizer) {
  constexpr int kSlots = kForwardSlots<Inputs>;
  begin_early();
  LossSums sums = {0, 0};
  for (int64_t first = first_slot<kSlots>(); first < inputs.slots; first += slots_of_grid<kSlots>()) {
    const SlotGroup<Inputs, kSlots> group(inputs, first);
#pragma unroll
    for (int k = 0; k < kSlots; ++k) {
      if (!group.valid[k]) continue;
      const double weight = static_cast<double>(group.weight(k));
      sums.loss += weight * static_cast<double>(1.0f - giou(group.pred(k), group.target(k), eps));
      sums.weight += weight;
    }
  }
  finish_loss(sums, workspace, ticket, loss, normalizer);
}

// Return the weight of a slot. Without weights: 1, or 0 if the target's y2 is 0.
template <typename T>
__device__ T slot_weight(const MaskedProblem& problem, int64_t slot) {
  if (problem.is_weighted) return load_number<T>(problem.weight, slot);
  return load_box<T>(problem.target, slot).y2 != T(0) ? T(1) : T(0);
}

// One thread takes one slot after another, a grid apart.
template <typename T>
__global__ void __launch_bounds__(kLossThreads)
    strided_forward_kernel(const __grid_constant__ MaskedProblem problem, T eps, LossSums* workspace,
                           unsigned int* ticket, T* loss, double* normalizer) {
  LossSums sums = {0, 0};
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t slot = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; slot < problem.slots; slot += step) {
    const T w = slot_weight<T>(problem, slot);
    if (w == T(0)) continue;
    const T slot_loss = T(1) - giou(load_box<T>(problem.pred, slot), load_box<T>(problem.target, slot), eps);
    sums.loss += static_cast<double>(w) * static_cast<double>(slot_loss);
    sums.weight += static_cast<double>(w);
  }
  finish_loss(sums, workspace, ticket, loss, normalizer);
}

// Compute loss and gradient. The scale of the gradients is known only after all slots have been added up, so
// each thread keeps its gradients until every block has written its sums to the workspace. All blocks run at
// the same time, and each block adds up all sums in the same order. A single block does not wait.
template <typename Inputs>
__global__ void __launch_bounds__(kLossThreads, kFusedBlocksPerSm)
    packed_loss_and_grad_kernel(const __grid_constant__ Inputs inputs, float eps, LossSums* workspace,
                                float* loss, PackedBox<typename Inputs::Pred>* grad_pred) {
  begin_early();
  const int64_t first = first_slot<kFusedSlots>();
  const SlotGroup<Inputs, kFusedSlots> group(inputs, first);
  group.write_padding(inputs, first, grad_pred);
  LossSums sums = {0, 0};
  Box<float> gradients[kFusedSlots];
#pragma unroll
  for (int k = 0; k < kFusedSlots; ++k) {
    if (!group.valid[k]) continue;
    const double weight = static_cast<double>(group.weight(k));
    sums.loss += weight * static_cast<double>(1.0f - giou(group.pred(k), group.target(k), eps));
    sums.weight += weight;
    gradients[k] = giou_gradient(group.pred(k), group.target(k), eps);
  }
  const LossSums total = sum_in_all_threads(sums, workspace);
  const double divisor = loss_divisor(total);
  if (blockIdx.x == 0 && threadIdx.x == 0) *loss = static_cast<float>(total.loss / divisor);
  const LossScale<float> scale(-1.0f, divisor);
#pragma unroll
  for (int k = 0; k < kFusedSlots; ++k) {
    if (group.valid[k]) {
      grad_pred[first + 32 * k] =
          pack_box<typename Inputs::Pred>(scaled(gradients[k], scale.of(group.weight(k))));
    }
  }
}

// All gradients:  d loss / d w_i = ((1 - giou_i) - [sum(w) > 1] loss) / D
template <typename T>
__global__ void __launch_bounds__(kLossThreads)
    strided_backward_kernel(const __grid_constant__ MaskedProblem problem,
                            const __grid_constant__ SlotView grad, const T* loss, const double* normalizer,
                            T eps, const __grid_constant__ MaskedGradients out) {
  const T upstream = !grad.exists() ? T(1) : load_number<T>(grad, 0);
  const LossScale<T> scale(upstream, *normalizer);
  const T per_weight = scale.of(T(1));
  const T loss_share = out.weight.exists() && *normalizer > 1 ? *loss : T(0);
  const int64_t step = int64_t{gridDim.x} * kLossThreads;
  for (int64_t slot = int64_t{blockIdx.x} * kLossThreads + threadIdx.x; slot < problem.slots; slot += step) {
    const T w = slot_weight<T>(problem, slot);
    Box<T> predicted = {0, 0, 0, 0}, wanted = {0, 0, 0, 0};
    if (w != T(0) || out.weight.exists()) {
      predicted = load_box<T>(problem.pred, slot);
      wanted = load_box<T>(problem.target, slot);
    }
    if (out.weight.exists()) {
      store_number(out.weight, slot, per_weight * (T(1) - giou(predicted, wanted, eps) - loss_share));
    }
    const auto gradient = [&](const Box<T>& of, const Box<T>& against) {
      return w != T(0) ? scaled(giou_gradient(of, against, eps), -scale.of(w)) : Box<T>{0, 0, 0, 0};
    };
    if (out.pred.exists()) store_box(out.pred, slot, gradient(predicted, wanted));
    if (out.target.exists()) store_box(out.target, slot, gradient(wanted, predicted));
  }
}

// Call body(inputs) if the memory is packed and has specialised kernels for its dtypes. Return whether body
// was called. Kernels with weights exist for the dtypes of training: float32 weights, and targets of float32
// or of the predictions' dtype.
template <typename Body>
bool with_packed_inputs(const MaskedProblem& problem, const Body& body) {
  bool found = false;
  with_packed_types(problem.pred, problem.target, [&](auto pred_tag, auto target_tag) {
    using Pred = typename decltype(pred_tag)::type;
    using Target = typename decltype(target_tag)::type;
    if (!problem.is_weighted) {
      body(PackedInputs<Pred, Target, void>(problem));
      found = true;
    } else if constexpr (std::is_same_v<Target, float> || std::is_same_v<Target, Pred>) {
      if (!problem.weight.packed || problem.weight.dtype != DType::kFloat32) return;
      body(PackedInputs<Pred, Target, float>(problem));
      found = true;
    }
  });
  return found;
}

int64_t threads_for(const MaskedProblem& problem, int slots_a_thread) {
  return (problem.slots + slots_a_thread - 1) / slots_a_thread;
}

// Launch loss and gradient as one kernel, or return nullopt if that is not possible. One block costs hardly
// more than the loss alone. If all blocks run at the same time, their synchronisation costs less than another
// launch. A larger batch would have to be read twice in any case.
std::optional<cudaError_t> launch_fused(const MaskedProblem& problem, LossSums* workspace, void* loss,
                                        const SlotView& grad_pred, cudaStream_t stream) {
  const int64_t threads = threads_for(problem, kFusedSlots);
  if (threads > int64_t{kFusedBlocksPerSm} * multiprocessors() * kLossThreads) return std::nullopt;
  const LaunchShape shape = loss_shape(threads);
  std::optional<cudaError_t> error;
  with_packed_inputs(problem, [&](const auto& inputs) {
    using Inputs = std::decay_t<decltype(inputs)>;
    error =
        launch(shape.blocks.x == 1 ? Start::kEarly : Start::kTogether, packed_loss_and_grad_kernel<Inputs>,
               shape, stream, inputs, static_cast<float>(problem.eps), workspace, static_cast<float*>(loss),
               static_cast<PackedBox<typename Inputs::Pred>*>(grad_pred.data));
  });
  // CUDA MPS, for example, limits the blocks of a process, so fewer may fit than the device could hold.
  if (error != cudaErrorCooperativeLaunchTooLarge) return error;
  cudaGetLastError();
  return std::nullopt;
}

}  // namespace

size_t lensbox_cuda_loss_workspace(int64_t threads) {
  const size_t blocks = loss_shape(threads).blocks.x;
  return blocks > 1 ? kSpareBytes + blocks * sizeof(LossSums) : 0;
}

cudaError_t lensbox_cuda_masked_giou_loss_forward(const MaskedProblem& problem, void* loss,
                                                  double* normalizer, void* workspace, cudaStream_t stream) {
  auto* sums = static_cast<LossSums*>(behind_spare(workspace));
  unsigned int* ticket = nullptr;
  LENSBOX_RETURN_IF_FAILED(take_tickets(stream, workspace, &ticket));
  const bool packed = with_packed_inputs(problem, [&](const auto& inputs) {
    using Inputs = std::decay_t<decltype(inputs)>;
    launch(Start::kEarly, packed_forward_kernel<Inputs>,
           loss_shape(threads_for(problem, kForwardSlots<Inputs>)), stream, inputs,
           static_cast<float>(problem.eps), sums, ticket, static_cast<float*>(loss), normalizer);
  });
  if (packed) return cudaGetLastError();
  with_math(problem.in_double, [&](auto math) {
    using T = decltype(math);
    const LaunchShape shape = loss_shape(problem.slots);
    strided_forward_kernel<T><<<shape.blocks, shape.threads, 0, stream>>>(
        problem, static_cast<T>(problem.eps), sums, ticket, static_cast<T*>(loss), normalizer);
  });
  return cudaGetLastError();
}

cudaError_t lensbox_cuda_masked_giou_loss_backward(const MaskedProblem& problem, const SlotView& grad,
                                                   const void* loss, const double* normalizer,
                                                   const MaskedGradients& out, cudaStream_t stream) {
  if (problem.slots == 0) return cudaSuccess;
  const bool only_pred = out.pred.exists() && !out.target.exists() && !out.weight.exists();
  const bool plain_grad = !grad.exists() || grad.dtype == DType::kFloat32;
  const bool packed = only_pred && plain_grad && with_packed_inputs(problem, [&](const auto& inputs) {
                        launch_packed_backward<SlotGroup<std::decay_t<decltype(inputs)>, kGradientSlots>>(
                            inputs, problem.slots, grad.data, normalizer, problem.eps, out.pred, stream);
                      });
  if (packed) return cudaGetLastError();
  with_math(problem.in_double, [&](auto math) {
    using T = decltype(math);
    strided_backward_kernel<T>
        <<<grid_size(problem.slots, kLossThreads, kGradientBlocksPerSm), kLossThreads, 0, stream>>>(
            problem, grad, static_cast<const T*>(loss), normalizer, static_cast<T>(problem.eps), out);
  });
  return cudaGetLastError();
}

cudaError_t lensbox_cuda_masked_giou_loss_and_grad(const MaskedProblem& problem, void* loss,
                                                   double* normalizer, const SlotView& grad_pred,
                                                   void* workspace, cudaStream_t stream) {
  auto* sums = static_cast<LossSums*>(behind_spare(workspace));
  const auto fused = launch_fused(problem, sums, loss, grad_pred, stream);
  if (fused.has_value()) return *fused;
  LENSBOX_RETURN_IF_FAILED(
      lensbox_cuda_masked_giou_loss_forward(problem, loss, normalizer, workspace, stream));
  return lensbox_cuda_masked_giou_loss_backward(problem, SlotView{}, loss, normalizer, {grad_pred, {}, {}},
                                                stream);
}

}  // namespace lensbox
