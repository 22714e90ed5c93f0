// NMS of few images, or of few boxes an image, in one launch: all overlaps first, by one or several blocks an
// image.
//
// If a batch has fewer images than the device has multiprocessors, one block an image would leave most of
// them idle. Here every block of an image ranks all its candidates (the same work in each block) and computes
// a part of the overlaps, as bits: bit j of word (w, i) says that candidate 32 w + j, an earlier one, would
// remove i. The block that takes the image's last ticket has all words and does the rest:
//
//   for each 32 candidates:  one warp finds out which of them stay; barrier; every later candidate tests
//                            with one word and one AND whether a kept one would remove it
//
// The ranking and the rules are those of padded_nms_kernel.cu, and so is the result, to the bit.

#include "device.cuh"
#include "launch.h"
#include "padded_nms_block.cuh"

namespace lensbox {
namespace {

// With fewer threads an image, the overlaps take less time than the synchronisation of several blocks.
constexpr int kLeastSplitThreads = 128;

// Up to this number of threads, a block that computes all overlaps first is faster than a block that computes
// only the overlaps that it needs (padded_nms_kernel.cu).
constexpr int kMostAloneThreads = 512;
constexpr size_t kMostAloneBytes = size_t{64} << 20;  // of workspace

// The number of words that a thread of the last block reads ahead.
constexpr int kAhead = 4;

// The words of an image: [blockDim.x / 32][blockDim.x]; words with 32 w > i are neither written nor
// read. A warp computes 32 words at a time: each lane compares one candidate i with 32 earlier boxes in
// shared memory.
template <typename T>
__device__ void write_removers(const NmsProblem& problem, int count, const Candidates<T>& candidates,
                               unsigned int* words) {
  const int lane = threadIdx.x % 32, warps = static_cast<int>(blockDim.x) / 32;
  const T threshold = static_cast<T>(problem.iou_threshold);
  const int rows = (count + 31) / 32;
  const int tasks = rows * (rows + 1) / 2;
  // Task t is word w of the candidates 32 row to 32 row + 31, w <= row: rows of a triangle, one after
  // another.
  for (int task = static_cast<int>(blockIdx.x) * warps + static_cast<int>(threadIdx.x) / 32; task < tasks;
       task += static_cast<int>(gridDim.x) * warps) {
    int row = static_cast<int>((sqrtf(8.0f * static_cast<float>(task) + 1.0f) - 1.0f) / 2.0f);
    while (row * (row + 1) / 2 > task)
      --row;
    while ((row + 1) * (row + 2) / 2 <= task)
      ++row;
    const int w = task - row * (row + 1) / 2;
    const int i = 32 * row + lane;
    const Box<T> box = candidates.boxes[i];
    const T area = candidates.areas[i];
    const int64_t category = problem.has_categories ? candidates.categories[i] : 0;
    unsigned int removers = 0;
#pragma unroll 8
    for (int j = 0; j < 32; ++j) {
      const bool removes =
          candidates.removes_ordinary(32 * w + j, box, area, category, threshold, problem.has_categories);
      removers |= static_cast<unsigned int>(removes) << j;
    }
    if (candidates.any_huge) {
      for (int j = 0; j < 32; ++j) {
        const bool removes =
            candidates.removes_huge(32 * w + j, box, area, category, threshold, problem.has_categories);
        removers |= static_cast<unsigned int>(removes) << j;
      }
    }
    if (w == row) removers &= (1u << lane) - 1;  // earlier ones only
    words[w * blockDim.x + i] = removers;
  }
}

// blockIdx.x: part of the image, y: image.
template <typename T, typename Score>
__global__ void __launch_bounds__(kMaxNmsThreads)
    padded_nms_split_kernel(const __grid_constant__ NmsProblem problem, unsigned int* workspace,
                            unsigned int* tickets) {
  extern __shared__ __align__(16) unsigned char memory[];
  __shared__ unsigned int kept_words[kMaxNmsWarps];
  __shared__ bool is_last;

  const int64_t image = blockIdx.y;
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  unsigned int* words = workspace + image * (blockDim.x / 32) * blockDim.x;
  if (lane == 0) kept_words[warp] = 0;

  Candidates<T> candidates(memory);
  int count;
  const auto own = rank_candidates<T, Score>(problem, image, memory, candidates, count);
  write_removers(problem, count, candidates, words);
  __syncthreads();
  if (gridDim.x > 1) {
    if (thread == 0) is_last = take_last_ticket(tickets + image, gridDim.x);
    __syncthreads();
    if (!is_last) return;
  }

  bool removed = false;
  int64_t kept_count = 0;
  const int rows = (count + 31) / 32;
  for (int first = 0; first < rows && kept_count < problem.max_detections; first += kAhead) {
    unsigned int removers[kAhead];
#pragma unroll
    for (int k = 0; k < kAhead; ++k) {
      const int w = first + k;
      removers[k] = w <= warp && own.exists ? __ldcg(&words[w * blockDim.x + thread]) : 0;
    }
#pragma unroll
    for (int k = 0; k < kAhead; ++k) {
      const int w = first + k;
      if (w >= rows || kept_count >= problem.max_detections) break;
      if (warp == w) {
        const unsigned int alive = __ballot_sync(kFullWarp, own.exists && !removed);
        const unsigned int kept = kept_of_32(alive, removers[k]);
        if (lane == 0) kept_words[w] = kept;
      }
      __syncthreads();
      const unsigned int kept = kept_words[w];
      kept_count += __popc(kept);
      removed = removed || (warp > w && (removers[k] & kept) != 0);
    }
  }
  write_image(problem, image, own.key, kept_words, kept_count);
}

// Return the number of blocks of an image: one warp per task, limited by the device and by the number of
// tickets.
int blocks_of_image(const NmsProblem& problem, int threads) {
  if (problem.batch > kMaxTickets || threads < kLeastSplitThreads) return 1;
  const int warps = threads / 32;
  const int wanted = (warps + 1) / 2;  // warps * (warps + 1) / 2 tasks
  return static_cast<int>(std::clamp<int64_t>(multiprocessors() / problem.batch, 1, wanted));
}

}  // namespace

size_t split_nms_workspace(const NmsProblem& problem) {
  const int threads = nms_threads(problem);
  const size_t bytes =
      kSpareBytes + static_cast<size_t>(problem.batch) * (threads / 32) * threads * sizeof(unsigned int);
  const bool alone_is_faster =
      kLeastSplitThreads <= threads && threads <= kMostAloneThreads && bytes <= kMostAloneBytes;
  return alone_is_faster || blocks_of_image(problem, threads) > 1 ? bytes : 0;
}

cudaError_t launch_split_nms(const NmsProblem& problem, void* memory, cudaStream_t stream) {
  auto* workspace = static_cast<unsigned int*>(behind_spare(memory));
  unsigned int* tickets = nullptr;
  const int blocks = blocks_of_image(problem, nms_threads(problem));
  if (blocks > 1) {
    LENSBOX_RETURN_IF_FAILED(take_tickets(stream, memory, &tickets));
  }
  return with_math_types(problem, [&](auto math, auto score) {
    using T = decltype(math);
    using Score = decltype(score);
    const dim3 grid(static_cast<unsigned int>(blocks), static_cast<unsigned int>(problem.batch));
    return launch_ranking<T, Score>(padded_nms_split_kernel<T, Score>, problem, grid, stream, workspace,
                                    tickets);
  });
}

}  // namespace lensbox
