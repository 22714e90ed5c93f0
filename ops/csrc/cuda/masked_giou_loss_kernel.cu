// The fused masked GIoU loss: one launch forward and one backward, or one launch for both if the batch is
// small enough.
//
// Most slots of a padded batch are padding. So the forward reads every target once, and reads a prediction
// only if its target is valid. With weights the forward reads every weight, and reads both boxes only if the
// weight is not 0. The chain of dependent steps limits its speed: docs/loss_kernel.md. Sums are double and
// are added in an order that depends only on the launch configuration, so results are repeatable to the bit.
//
//   block sums --> workspace[block] --> the last block to arrive adds them up in order and writes
//
// The kernels are those of both losses (loss_kernels.cuh); here is the source of their slots, and the kernel
// of loss and gradient at once.

#include <optional>

#include "launchers.h"
#include "loss_kernels.cuh"

namespace lensbox {
namespace {

// Loss and gradient in one launch: a multiprocessor of any GPU runs this number of blocks at the same time.
constexpr int kFusedBlocksPerSm = 3;

// Without weights: Weight is void, and a slot counts once unless y2 of its target is 0.
template <typename PredType, typename TargetType, typename Weight>
struct MaskedSource {
  using Pred = PredType;
  using Target = TargetType;
  static constexpr bool kIsWeighted = !std::is_void_v<Weight>;
  // Four weights, or as many slots as have one coordinate in 4 bytes.
  static constexpr int kForwardSlots = kIsWeighted ? 4 : sizeof(Target) < 4 ? 4 / sizeof(Target) : 1;

  const PackedBox<Pred>* preds;
  const PackedBox<Target>* targets;
  const Weight* weights;
  int64_t slots;

  explicit MaskedSource(const MaskedProblem& problem)
      : preds(static_cast<const PackedBox<Pred>*>(problem.pred.data)),
        targets(static_cast<const PackedBox<Target>*>(problem.target.data)),
        weights(static_cast<const Weight*>(problem.weight.data)),
        slots(problem.slots) {}

  LENSBOX_HOST_DEVICE int64_t slot_count() const { return slots; }
  MaskedSource for_forward() const { return *this; }
  LENSBOX_HOST_DEVICE int64_t starts() const { return slots; }
  __device__ int64_t first_of(int64_t start) const { return start; }
  template <typename Group>
  __device__ bool goes_on(const Group& /*group*/, int64_t& /*first*/) const {
    return false;
  }
  __device__ void check(LossSums& /*sums*/) const {}

  template <int kCount>
  struct Group {
    static constexpr int kSlots = kCount;

    float weights[kSlots];  // if the problem has weights
    PackedBox<Target> targets[kSlots];
    PackedBox<Pred> preds[kSlots];  // of valid slots only; with weights, the same holds for the targets
    bool valid[kSlots];

    // Issue all loads that tell which slots are valid before the first loaded value is used.
    __device__ Group(const MaskedSource& source, int64_t first) {
#pragma unroll
      for (int k = 0; k < kSlots; ++k) {
        const int64_t slot = first + 32 * k;
        if constexpr (kIsWeighted) {
          weights[k] = slot < source.slots ? source.weights[slot] : 0.0f;
        } else {
          targets[k] = slot < source.slots ? source.targets[slot] : PackedBox<Target>{};
        }
      }
#pragma unroll
      for (int k = 0; k < kSlots; ++k) {
        valid[k] = (kIsWeighted ? weights[k] : to_math<float>(targets[k].y2)) != 0;
        if (!valid[k]) continue;
        preds[k] = source.preds[first + 32 * k];
        if constexpr (kIsWeighted) targets[k] = source.targets[first + 32 * k];
      }
    }

    __device__ bool is_broken(int /*k*/) const { return false; }
    __device__ float weight(int k) const { return kIsWeighted ? weights[k] : 1.0f; }
    __device__ Box<float> pred(int k) const { return to_math<float>(preds[k]); }
    __device__ Box<float> target(int k) const { return to_math<float>(targets[k]); }
  };
};

struct StridedMaskedSource : MaskedProblem {
  LENSBOX_HOST_DEVICE int64_t slot_count() const { return slots; }
  LENSBOX_HOST_DEVICE int64_t target_count() const { return slots; }
  __device__ void check(LossSums& /*sums*/) const {}
  __device__ bool is_broken() const { return false; }

  template <typename T>
  __device__ Slot<T> find(int64_t slot) const {
    if (is_weighted) return {slot, load_number<T>(weight, slot)};
    return {slot, load_box<T>(target, slot).y2 != T(0) ? T(1) : T(0)};
  }
};

}  // namespace

// loss_kernels.cuh finds these two by the type of the problem.
static StridedMaskedSource strided_source(const MaskedProblem& problem) {
  return {problem};
}

// Call body(source) if the memory is packed and has specialised kernels for its dtypes. Return whether body
// was called. Kernels with weights exist for the dtypes of training: float32 weights, and targets of float32
// or of the predictions' dtype.
template <typename Body>
static bool with_packed_source(const MaskedProblem& problem, const Body& body) {
  bool found = false;
  with_packed_types(problem.pred, problem.target, [&](auto pred_tag, auto target_tag) {
    using Pred = typename decltype(pred_tag)::type;
    using Target = typename decltype(target_tag)::type;
    if (!problem.is_weighted) {
      body(MaskedSource<Pred, Target, void>(problem));
      found = true;
    } else if constexpr (std::is_same_v<Target, float> || std::is_same_v<Target, Pred>) {
      if (!problem.weight.packed || problem.weight.dtype != DType::kFloat32) return;
      body(MaskedSource<Pred, Target, float>(problem));
      found = true;
    }
  });
  return found;
}

namespace {

constexpr int kFusedSlots = 4;  // as many as a thread can keep gradients of

// Compute loss and gradient. The scale of the gradients is known only after all slots have been added up, so
// each thread keeps its gradients until every block has written its sums to the workspace. All blocks run at
// the same time, and each block adds up all sums in the same order. A single block does not wait.
template <typename Source>
__global__ void __launch_bounds__(kLossThreads, kFusedBlocksPerSm)
    packed_loss_and_grad_kernel(const __grid_constant__ Source source, float eps, LossSums* workspace,
                                float* loss, PackedBox<typename Source::Pred>* grad_pred) {
  wait_for_earlier();
  const int64_t first = first_slot<kFusedSlots>();
  const typename Source::template Group<kFusedSlots> group(source, first);
  write_padding(group, source, first, grad_pred);
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
  let_next_begin();  // not before: blocks of the next launch would share the multiprocessors with these
  const double divisor = loss_divisor(total);
  if (blockIdx.x == 0 && threadIdx.x == 0) *loss = static_cast<float>(total.loss / divisor);
  const LossScale<float> scale(-1.0f, divisor);
#pragma unroll
  for (int k = 0; k < kFusedSlots; ++k) {
    if (group.valid[k]) {
      grad_pred[first + 32 * k] =
          pack_box<typename Source::Pred>(scaled(gradients[k], scale.of(group.weight(k))));
    }
  }
}

// Launch loss and gradient as one kernel, or return nullopt if that is not possible. One block costs hardly
// more than the loss alone. If all blocks run at the same time, their synchronisation costs less than another
// launch. A larger batch would have to be read twice in any case.
std::optional<cudaError_t> launch_fused(const MaskedProblem& problem, LossSums* workspace, void* loss,
                                        const SlotView& grad_pred, cudaStream_t stream) {
  const int64_t threads = threads_for(problem.slots, kFusedSlots);
  if (threads > int64_t{kFusedBlocksPerSm} * multiprocessors() * kLossThreads) return std::nullopt;
  const LaunchShape shape = loss_shape(threads);
  std::optional<cudaError_t> error;
  with_packed_source(problem, [&](const auto& source) {
    using Source = std::decay_t<decltype(source)>;
    error = launch(shape.blocks.x == 1 ? Start::kProgrammatic : Start::kCooperative,
                   packed_loss_and_grad_kernel<Source>, shape, stream, source,
                   static_cast<float>(problem.eps), workspace, static_cast<float*>(loss),
                   static_cast<PackedBox<typename Source::Pred>*>(grad_pred.data));
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
  return launch_forward(problem, loss, normalizer, workspace, stream);
}

cudaError_t lensbox_cuda_masked_giou_loss_backward(const MaskedProblem& problem, const SlotView& grad,
                                                   const void* loss, const double* normalizer,
                                                   const MaskedGradients& out, cudaStream_t stream) {
  if (problem.slots == 0) return cudaSuccess;
  return launch_backward(problem, grad, loss, normalizer, out, stream);
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
