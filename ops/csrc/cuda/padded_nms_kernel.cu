// NMS of a batch in one launch: a block an image, a thread a candidate.
//
//   1. rank      Every box becomes a key: order bits of its score above the inverted index, so that keys are
//                unique and greater means earlier. With more boxes than threads a radix select (8 bits a
//                round) first finds the smallest key that belongs to the best max_candidates. A bitonic sort
//                then gives thread t the t-th candidate.
//   2. suppress  Candidates are taken 32 at a time. The block computes the 32 x 32 overlaps among them, one
//                a thread; every warp finds out which of them stay, by ballots; then every later candidate
//                tests itself against those kept. Two barriers for 32 candidates.
//   3. write     The rank of a kept candidate is the number of kept ones before it.
//
// Atomics only count, so the result is deterministic. The arithmetic is the CPU kernel's, to the bit.

#include "launchers.h"
#include "padded_nms_block.cuh"

namespace lensbox {
namespace {

// The state that the threads of a block share during suppression.
struct Suppression {
  unsigned int alive[2];      // bit i: candidate i of the current 32 is not removed by an earlier one
  unsigned int removers[32];  // bit j of word i: of the current 32, j would remove i, j < i
  unsigned int kept_words[kMaxNmsWarps];
};

// Step 2: fill shared.kept_words and return the number of kept candidates. All threads of the block must call
// this.
template <bool kAnyHuge, typename T, typename Score>
__device__ __forceinline__ int64_t suppress(const NmsProblem& problem, const Candidates<T>& candidates,
                                            const Candidate<T, Score>& own, int count, Suppression& shared) {
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  const int warps = static_cast<int>(blockDim.x) / 32;
  const T threshold = static_cast<T>(problem.iou_threshold);
  bool removed = false;
  int64_t kept_count = 0;
  for (int first = 0; first < count && kept_count < problem.max_detections; first += 32) {
    const int word = first / 32;
    if (warp == word) {
      const unsigned int ballot = __ballot_sync(kFullWarp, own.exists && !removed);
      if (lane == 0) shared.alive[word % 2] = ballot;  // two words: slower warps may still read the last one
    }
    __syncthreads();
    for (int row = warp; row < 32; row += warps) {
      const int i = first + row, j = first + lane;
      const bool removes =
          j < i && i < count &&
          candidates.template removes<kAnyHuge>(j, candidates.boxes[i], candidates.areas[i],
                                                problem.has_categories ? candidates.categories[i] : 0,
                                                threshold, problem.has_categories);
      const unsigned int ballot = __ballot_sync(kFullWarp, removes);
      if (lane == 0) shared.removers[row] = ballot;
    }
    __syncthreads();
    const unsigned int kept = kept_of_32(shared.alive[word % 2], shared.removers[lane]);
    if (thread == 0) shared.kept_words[word] = kept;
    kept_count += __popc(kept);
    if (thread >= first + 32 && own.exists) {
      for (unsigned int others = kept; others != 0 && !removed; others &= others - 1) {
        removed = candidates.template removes<kAnyHuge>(first + __ffs(others) - 1, own.box, own.area,
                                                        own.category, threshold, problem.has_categories);
      }
    }
  }
  return kept_count;
}

template <typename T, typename Score>
__global__ void __launch_bounds__(kMaxNmsThreads)
    padded_nms_kernel(const __grid_constant__ NmsProblem problem) {
  extern __shared__ __align__(16) unsigned char memory[];
  __shared__ Suppression shared;

  const int64_t image = blockIdx.x;
  const int thread = static_cast<int>(threadIdx.x);
  if (thread % 32 == 0) shared.kept_words[thread / 32] = 0;

  Candidates<T> candidates(memory);
  int count;
  const auto own = rank_candidates<T, Score>(problem, image, memory, candidates, count);
  const int64_t kept_count = candidates.any_huge ? suppress<true>(problem, candidates, own, count, shared)
                                                 : suppress<false>(problem, candidates, own, count, shared);
  __syncthreads();
  write_image(problem, image, own.key, shared.kept_words, kept_count);
}

}  // namespace

size_t lensbox_cuda_padded_nms_workspace(const NmsProblem& problem) {
  if (problem.batch == 0) return 0;
  return is_large(problem) ? large_nms_workspace(problem) : split_nms_workspace(problem);
}

cudaError_t lensbox_cuda_padded_nms(const NmsProblem& problem, void* workspace, cudaStream_t stream) {
  if (problem.batch == 0) return cudaSuccess;
  if (is_large(problem)) return launch_large_nms(problem, workspace, stream);
  if (workspace != nullptr) return launch_split_nms(problem, workspace, stream);
  return with_math_types(problem, [&](auto math, auto score) {
    using T = decltype(math);
    using Score = decltype(score);
    return launch_ranking<T, Score>(padded_nms_kernel<T, Score>, problem,
                                    static_cast<unsigned int>(problem.batch), stream);
  });
}

}  // namespace lensbox
