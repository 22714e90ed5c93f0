// The GIoU loss of padded predictions against packed targets: the kernels of the masked loss
// (loss_kernels.cuh), with another source. The offsets of its image tell which target a slot has, so padding
// costs no load of a box. Where most slots are padding, the forward starts warps in the first part of each
// image only; a warp goes on, a part further, until the image's boxes end.
//
// The host cannot check the offsets without waiting for the device. So the threads check the offsets that
// they read, and an invalid one makes the loss NaN.

#include <cmath>

#include "launchers.h"
#include "loss_kernels.cuh"

namespace lensbox {
namespace {

// Return slot / slots, for slots > 0; the 32-bit division is many times cheaper.
__device__ __forceinline__ int64_t image_of_slot(int64_t slot, int64_t slots) {
  if ((slot | slots) >> 32 == 0) return static_cast<uint32_t>(slot) / static_cast<uint32_t>(slots);
  return slot / slots;
}

// Offsets of any dtype and stride, or packed int64.
struct Offsets {
  SlotView view;
  int64_t images, slots, targets;

  explicit Offsets(const JaggedProblem& problem)
      : view(problem.offsets), images(problem.images), slots(problem.slots), targets(problem.target_count) {}

  LENSBOX_HOST_DEVICE int64_t slot_count() const { return images * slots; }
  LENSBOX_HOST_DEVICE int64_t target_count() const { return targets; }

  template <bool kPacked>
  __device__ int64_t offset(int64_t image) const {
    if constexpr (kPacked) return static_cast<const int64_t*>(view.data)[image];
    const int64_t at = image * view.strides[0];
    return view.dtype == DType::kInt32 ? static_cast<const int32_t*>(view.data)[at]
                                       : static_cast<const int64_t*>(view.data)[at];
  }

  template <bool kPacked>
  __device__ Segment segment_of(int64_t image, bool& is_valid) const {
    const int64_t first = offset<kPacked>(image), end = offset<kPacked>(image + 1);
    is_valid = is_valid_segment(image, first, end, images, slots, targets);
    return {first, end - first};
  }

  // Return what a slot has.
  template <typename T, bool kPacked = false>
  __device__ Slot<T> find(int64_t slot) const {
    const int64_t image = image_of_slot(slot, slots), position = slot - image * slots;
    bool is_valid;
    const Segment segment = segment_of<kPacked>(image, is_valid);
    if (!is_valid || position >= segment.count) return {-1, T(0), !is_valid};
    return {segment.first + position, T(1)};
  }

  // Make the loss NaN if a rule is broken that no slot shows: there is no slot.
  __device__ void check(LossSums& sums) const {
    if (slot_count() == 0 && targets > 0) sums.loss = NAN;
    const int64_t start = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
    for (int64_t image = start; slots == 0 && image < images; image += int64_t{gridDim.x} * blockDim.x) {
      bool is_valid;
      segment_of<false>(image, is_valid);
      if (!is_valid) sums.loss = NAN;
    }
  }

  // Return whether any offset breaks a rule. All threads of the block must call this.
  __device__ bool is_broken() const {
    bool all_valid = images > 0 || targets == 0;
    for (int64_t image = threadIdx.x; image < images; image += blockDim.x) {
      bool is_valid;
      segment_of<false>(image, is_valid);
      all_valid = all_valid && is_valid;
    }
    return __syncthreads_or(!all_valid);
  }
};

template <typename PredType, typename TargetType>
struct JaggedSource : Offsets {
  using Pred = PredType;
  using Target = TargetType;
  static constexpr int kForwardSlots = sizeof(Target) < 4 ? 4 : 2;

  const PackedBox<Pred>* preds;
  const PackedBox<Target>* target_boxes;
  int64_t part;  // the slots of each image where warps start

  explicit JaggedSource(const JaggedProblem& problem)
      : Offsets(problem),
        preds(static_cast<const PackedBox<Pred>*>(problem.pred.data)),
        target_boxes(static_cast<const PackedBox<Target>*>(problem.targets.data)),
        part(slots) {}

  // Start warps where an image of average size has boxes, if that is at most a quarter of the slots. A
  // sixteenth is the least: a warp then goes on fifteen times at most.
  JaggedSource for_forward() const {
    constexpr int64_t kWarpSlots = 32 * kForwardSlots;
    const int64_t least = std::max(targets / std::max<int64_t>(images, 1) + 1, slots / 16);
    const int64_t rounded = (least + kWarpSlots - 1) / kWarpSlots * kWarpSlots;
    JaggedSource source = *this;
    if (rounded <= slots / 4) source.part = rounded;
    return source;
  }

  LENSBOX_HOST_DEVICE bool has_parts() const { return part < slots; }
  LENSBOX_HOST_DEVICE int64_t starts() const { return images * part; }

  __device__ int64_t first_of(int64_t start) const {
    return has_parts() ? start + image_of_slot(start, part) * (slots - part) : start;
  }

  template <typename Group>
  __device__ bool goes_on(const Group& group, int64_t& first) const {
    first += part;
    return has_parts() && group.left > part;
  }

  template <int kCount>
  struct Group {
    static constexpr int kSlots = kCount;

    PackedBox<Target> targets[kSlots];
    PackedBox<Pred> preds[kSlots];
    bool valid[kSlots], broken[kSlots];  // broken: the image's offsets break the rules
    int64_t left = 0;                    // with parts: the image's boxes from the warp's first slot on

    __device__ Group(const JaggedSource& source, int64_t first) {
      int64_t at[kSlots];  // the places of the targets; -1: none
      const int64_t first_of_warp = first - threadIdx.x % 32;
      const int64_t image = image_of_slot(first_of_warp, source.slots);
      const int64_t position = first - image * source.slots;
      if (source.has_parts() || first_of_warp + 32 * kSlots <= (image + 1) * source.slots) {  // of one image
        bool is_valid;
        const Segment segment = source.template segment_of<true>(image, is_valid);
        left = is_valid ? image * source.slots + segment.count - first_of_warp : 0;
#pragma unroll
        for (int k = 0; k < kSlots; ++k) {
          broken[k] = !is_valid;
          at[k] = is_valid && position + 32 * k < segment.count ? segment.first + position + 32 * k : -1;
        }
      } else {
#pragma unroll
        for (int k = 0; k < kSlots; ++k) {
          const Slot<float> found =
              source.template find<float, true>(min(first + 32 * k, source.slot_count() - 1));
          broken[k] = found.is_broken;
          at[k] = first + 32 * k < source.slot_count() ? found.target : -1;
        }
      }
#pragma unroll
      for (int k = 0; k < kSlots; ++k) {
        valid[k] = at[k] >= 0;
        if (!valid[k]) continue;
        preds[k] = source.preds[first + 32 * k];
        targets[k] = source.target_boxes[at[k]];
      }
    }

    __device__ bool is_broken(int k) const { return broken[k]; }
    __device__ float weight(int /*k*/) const { return 1.0f; }
    __device__ Box<float> pred(int k) const { return to_math<float>(preds[k]); }
    __device__ Box<float> target(int k) const { return to_math<float>(targets[k]); }
  };
};

struct StridedJaggedSource : Offsets {
  SlotView pred, target;
};

}  // namespace

// loss_kernels.cuh finds these two by the type of the problem.
static StridedJaggedSource strided_source(const JaggedProblem& problem) {
  return {Offsets(problem), problem.pred, problem.targets};
}

template <typename Body>
static bool with_packed_source(const JaggedProblem& problem, const Body& body) {
  if (!problem.offsets.packed || problem.offsets.dtype != DType::kInt64) return false;
  return with_packed_types(problem.pred, problem.targets, [&](auto pred_tag, auto target_tag) {
    body(JaggedSource<typename decltype(pred_tag)::type, typename decltype(target_tag)::type>(problem));
  });
}

cudaError_t lensbox_cuda_jagged_giou_loss_forward(const JaggedProblem& problem, void* loss,
                                                  double* normalizer, void* workspace, cudaStream_t stream) {
  return launch_forward(problem, loss, normalizer, workspace, stream);
}

cudaError_t lensbox_cuda_jagged_giou_loss_backward(const JaggedProblem& problem, const SlotView& grad,
                                                   const double* normalizer, const SlotView& grad_pred,
                                                   const SlotView& grad_targets, cudaStream_t stream) {
  if (std::max(problem.images * problem.slots, problem.target_count) == 0) return cudaSuccess;
  return launch_backward(problem, grad, nullptr, normalizer, {grad_pred, grad_targets, {}}, stream);
}

}  // namespace lensbox
