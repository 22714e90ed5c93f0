// The article's open exercise: what does skipping padding gain as the work of a slot grows?
//
// One thread computes the GIoU of one slot kRepeats times, and each warp writes its sum. So the kernel moves
// only the inputs and 4 bytes per 32 slots. There are two versions:
//
//   branch-free   every thread reads its prediction and computes; padding is cleared at the end
//   skipping      threads of padding read no prediction and compute nothing
//
// A warp issues an instruction while any of its 32 threads needs it, so a skipping warp is done early only if
// all of its slots are padding.

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/library.h>

#include <utility>

namespace {

constexpr int kThreads = 256;
constexpr float kEps = 1e-7f;

// bfloat16 is the upper half of a float32.
__device__ float from_bfloat16(unsigned short bits) {
  return __uint_as_float(static_cast<unsigned int>(bits) << 16);
}

__device__ float giou(float4 a, float4 b) {
  const float area_a = fmaxf(a.z - a.x, 0.0f) * fmaxf(a.w - a.y, 0.0f);
  const float area_b = fmaxf(b.z - b.x, 0.0f) * fmaxf(b.w - b.y, 0.0f);
  const float width = fmaxf(fminf(a.z, b.z) - fmaxf(a.x, b.x), 0.0f);
  const float height = fmaxf(fminf(a.w, b.w) - fmaxf(a.y, b.y), 0.0f);
  const float intersection = width * height;
  const float union_area = area_a + area_b - intersection;
  const float hull = (fmaxf(a.z, b.z) - fminf(a.x, b.x)) * (fmaxf(a.w, b.w) - fminf(a.y, b.y));
  // Divide without the branches of an exact division, so that every pair of boxes costs the same
  // instructions.
  return __fdividef(intersection, fmaxf(union_area, kEps)) - __fdividef(hull - union_area, fmaxf(hull, kEps));
}

// Return the box moved by `by` in every coordinate.
__device__ float4 moved(float4 box, float by) {
  return {box.x + by, box.y + by, box.z + by, box.w + by};
}

// Return the sum of kRepeats equal values. `drift` is 0, but the compiler cannot know that: every coordinate
// of a repetition seems to depend on the previous repetition, so nothing is left out or computed only once.
// The loop is not unrolled, so n repetitions take n times the instructions of one.
template <int kRepeats>
__device__ float repeated_giou(float4 a, float4 b, float drift) {
  float sum = 0.0f;
#pragma unroll 1
  for (int repeat = 0; repeat < kRepeats; ++repeat) {
    const float value = giou(a, b);
    sum += value;
    a = moved(a, drift * value);
    b = moved(b, -drift * value);
  }
  return sum;
}

template <int kRepeats, bool kSkip>
__global__ void __launch_bounds__(kThreads)
    exercise_kernel(const ushort4* pred, const uchar4* target, float drift, float* warp_sums) {
  const int64_t slot = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const uchar4 wanted = target[slot];
  const bool valid = wanted.w != 0;
  float sum = 0.0f;
  if (!kSkip || valid) {
    const ushort4 bits = pred[slot];
    const float4 predicted = {from_bfloat16(bits.x), from_bfloat16(bits.y), from_bfloat16(bits.z),
                              from_bfloat16(bits.w)};
    const float4 box = {static_cast<float>(wanted.x), static_cast<float>(wanted.y),
                        static_cast<float>(wanted.z), static_cast<float>(wanted.w)};
    sum = repeated_giou<kRepeats>(predicted, box, drift);
  }
  sum = valid ? sum : 0.0f;
  for (int distance = 16; distance > 0; distance /= 2) {
    sum += __shfl_down_sync(0xffffffffu, sum, distance);
  }
  if (threadIdx.x % 32 == 0) warp_sums[slot / 32] = sum;
}

template <int kRepeats, bool kSkip>
void launch(const at::Tensor& pred, const at::Tensor& target, float* warp_sums) {
  const auto blocks = static_cast<unsigned int>(pred.numel() / 4 / kThreads);
  exercise_kernel<kRepeats, kSkip><<<blocks, kThreads, 0, c10::cuda::getCurrentCUDAStream()>>>(
      static_cast<const ushort4*>(pred.const_data_ptr()), static_cast<const uchar4*>(target.const_data_ptr()),
      0.0f, warp_sums);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

// Call the template of a run-time count. Return whether there is one.
template <int... kRepeats>
bool launch_any(std::integer_sequence<int, kRepeats...>, int64_t repeats, bool skip, const at::Tensor& pred,
                const at::Tensor& target, float* warp_sums) {
  const auto launch_if = [&](auto count) {
    constexpr int kCount = decltype(count)::value;
    if (repeats != kCount) return false;
    const auto chosen = skip ? launch<kCount, true> : launch<kCount, false>;
    chosen(pred, target, warp_sums);
    return true;
  };
  return (launch_if(std::integral_constant<int, kRepeats>{}) || ...);
}

// Return the sum of each warp, float32 [slots / 32]. pred: bfloat16, target: uint8, both [..., 4],
// contiguous, a multiple of 256 slots.
at::Tensor exercise(const at::Tensor& pred, const at::Tensor& target, int64_t repeats, bool skip) {
  TORCH_CHECK(pred.scalar_type() == at::kBFloat16, "pred must be bfloat16, got ", pred.scalar_type());
  TORCH_CHECK(target.scalar_type() == at::kByte, "target must be uint8, got ", target.scalar_type());
  TORCH_CHECK(pred.sizes() == target.sizes() && pred.size(-1) == 4,
              "pred and target must have one shape [..., 4], got ", pred.sizes(), " and ", target.sizes());
  TORCH_CHECK(pred.is_contiguous() && target.is_contiguous(), "pred and target must be contiguous");
  const int64_t slots = pred.numel() / 4;
  TORCH_CHECK(slots > 0 && slots % kThreads == 0, "pred must hold a multiple of ", kThreads, " slots, got ",
              slots);
  const c10::cuda::CUDAGuard device(pred.device());
  at::Tensor warp_sums = at::empty({slots / 32}, pred.options().dtype(at::kFloat));
  using Counts = std::integer_sequence<int, 1, 2, 4, 8, 16, 32, 64, 128, 256>;
  TORCH_CHECK(launch_any(Counts{}, repeats, skip, pred, target, warp_sums.mutable_data_ptr<float>()),
              "repeats must be a power of two from 1 to 256, got ", repeats);
  return warp_sums;
}

}  // namespace

TORCH_LIBRARY_IMPL(lensbox_bench, CUDA, m) {
  m.impl("exercise", exercise);
}
