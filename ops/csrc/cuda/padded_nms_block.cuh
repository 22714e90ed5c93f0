// The steps of NMS within a block: rank the candidates of an image, decide which of 32 candidates stay, and
// write the detections. Each thread holds one candidate; blockDim.x is a power of two of at least 32.
#pragma once

#include <algorithm>
#include <climits>

#include "device.cuh"
#include "launchers.h"
#include "padded_nms_device.cuh"

namespace lensbox {

constexpr int kMaxNmsThreads = static_cast<int>(kMaxBlockCandidates);
constexpr int kMaxNmsWarps = kMaxNmsThreads / 32;

// Order bits, then the inverted index. Equal scores: the smaller index is the greater key.
template <typename Bits>
struct Key {
  Bits order;
  uint32_t inverted_index;

  __device__ int64_t index() const { return UINT_MAX - inverted_index; }
  __device__ bool is_none() const { return order == 0; }
  __device__ bool operator>(const Key& other) const {
    return order > other.order || (order == other.order && inverted_index > other.inverted_index);
  }

  // Digit 0 is the most significant.
  static constexpr int kOrderDigits = sizeof(Bits);
  static constexpr int kDigits = kOrderDigits + 4;

  __device__ unsigned int digit(int d) const {
    return d < kOrderDigits ? static_cast<unsigned int>(order >> (8 * (kOrderDigits - 1 - d))) & 255u
                            : inverted_index >> (8 * (kDigits - 1 - d)) & 255u;
  }

  __device__ void set_digit(int d, unsigned int value) {
    if (d < kOrderDigits) {
      order |= static_cast<Bits>(value) << (8 * (kOrderDigits - 1 - d));
    } else {
      inverted_index |= value << (8 * (kDigits - 1 - d));
    }
  }
};

template <typename Score>
using KeyOf = Key<decltype(order_bits(Score{}))>;

template <typename Score>
__device__ KeyOf<Score> make_key(const NmsProblem& problem, int64_t image, int64_t index) {
  const auto bits = candidate_bits<Score>(problem, image * problem.per_image + index);
  return {bits, bits != 0 ? UINT_MAX - static_cast<uint32_t>(index) : 0};
}

// Return the best max_candidates keys of an image with more boxes than the block has threads: one key a
// thread, in no particular order, and none in the remaining threads.
template <typename Score>
__device__ KeyOf<Score> select_candidates(const NmsProblem& problem, int64_t image, KeyOf<Score>* selected) {
  using K = KeyOf<Score>;
  constexpr int kEveryKey = -1;  // in place of a bin: there are no more keys than are wanted
  __shared__ int histogram[256];
  __shared__ int chosen_bin, wanted;
  __shared__ bool bin_is_whole;  // all keys of the chosen bin are selected, so lower digits need no look
  __shared__ int found;

  // `pivot` is built digit by digit and becomes the smallest selected key. `wanted` is the number of keys to
  // select among the keys that share its first digits.
  K pivot = {0, 0};
  if (threadIdx.x == 0) wanted = static_cast<int>(problem.max_candidates);
  for (int d = 0; d < K::kDigits; ++d) {
    for (int bin = threadIdx.x; bin < 256; bin += blockDim.x) {
      histogram[bin] = 0;
    }
    __syncthreads();
    for (int64_t i = threadIdx.x; i < problem.per_image; i += blockDim.x) {
      const K key = make_key<Score>(problem, image, i);
      bool same_prefix = !key.is_none();
      for (int previous = 0; previous < d; ++previous) {
        same_prefix = same_prefix && key.digit(previous) == pivot.digit(previous);
      }
      if (same_prefix) atomicAdd(&histogram[key.digit(d)], 1);
    }
    __syncthreads();
    // Warp 0 finds the digit. Lane l holds the bins 8l to 8l + 7, and the number of keys in higher bins.
    if (threadIdx.x < 32) {
      const int lane = threadIdx.x;
      int own = 0;
      for (int bin = 8 * lane; bin < 8 * lane + 8; ++bin) {
        own += histogram[bin];
      }
      int above = 0;
      for (int other = 31; other > 0; --other) {
        const int count = __shfl_sync(kFullWarp, own, other);
        if (other > lane) above += count;
      }
      const int total = __shfl_sync(kFullWarp, above + own, 0);
      const int target = wanted;
      __syncwarp();
      if (total <= target) {  // fewer than wanted: all are selected (only in round 0)
        if (lane == 0) chosen_bin = kEveryKey;
      } else if (above < target && target <= above + own) {
        int bin = 8 * lane + 7;
        while (above + histogram[bin] < target) {
          above += histogram[bin--];
        }
        chosen_bin = bin;
        bin_is_whole = histogram[bin] == target - above;
        wanted = target - above;
      }
    }
    __syncthreads();
    if (chosen_bin == kEveryKey) break;
    pivot.set_digit(d, chosen_bin);
    if (bin_is_whole) break;
  }

  if (threadIdx.x == 0) found = 0;
  __syncthreads();
  for (int64_t i = threadIdx.x; i < problem.per_image; i += blockDim.x) {
    const K key = make_key<Score>(problem, image, i);
    if (!key.is_none() && !(pivot > key)) selected[atomicAdd(&found, 1)] = key;
  }
  __syncthreads();
  const K key = static_cast<int>(threadIdx.x) < found ? selected[threadIdx.x] : K{0, 0};
  __syncthreads();  // selected is used again
  return key;
}

// Bitonic sort of one key a thread, descending; blockDim.x is a power of two. Partners within a warp exchange
// by shuffle, farther ones through shared memory.
template <typename K>
__device__ K sort_descending(K key, K* exchange) {
  for (unsigned int size = 2; size <= blockDim.x; size *= 2) {
    for (unsigned int distance = size / 2; distance > 0; distance /= 2) {
      K other;
      if (distance < 32) {
        other = {__shfl_xor_sync(kFullWarp, key.order, distance),
                 __shfl_xor_sync(kFullWarp, key.inverted_index, distance)};
      } else {
        exchange[threadIdx.x] = key;
        __syncthreads();
        other = exchange[threadIdx.x ^ distance];
        __syncthreads();
      }
      const bool first_of_pair = (threadIdx.x & distance) == 0;
      const bool descending = (threadIdx.x & size) == 0;
      if ((first_of_pair == descending) != (key > other)) key = other;
    }
  }
  return key;
}

// Shared memory of the suppression, sized for blockDim.x candidates. The keys of the ranking lie in the same
// place.
template <typename T>
struct Candidates {
  Box<T>* boxes;
  T* areas;
  int64_t* categories;
  bool any_huge = false;  // whether an area is infinite

  static size_t bytes(int threads, bool has_categories) {
    return threads * (sizeof(Box<T>) + sizeof(T) + (has_categories ? sizeof(int64_t) : 0));
  }

  __device__ explicit Candidates(unsigned char* memory)
      : boxes(reinterpret_cast<Box<T>*>(memory)),
        areas(reinterpret_cast<T*>(boxes + blockDim.x)),
        categories(reinterpret_cast<int64_t*>(areas + blockDim.x)) {}

  // Return whether candidate i removes a later candidate, which the calling thread holds in registers.
  // kAnyHuge is any_huge at compile time, so that the loops of ordinary images contain no code for huge
  // boxes.
  template <bool kAnyHuge>
  __device__ bool removes(int i, const Box<T>& box, T area, int64_t category, T threshold,
                          bool has_categories) const {
    const bool ordinary = removes_ordinary(i, box, area, category, threshold, has_categories);
    if constexpr (!kAnyHuge) return ordinary;
    return ordinary || removes_huge(i, box, area, category, threshold, has_categories);
  }

  // The two halves of removes(), for loops that run the first half for all pairs before the second half.
  __device__ bool removes_ordinary(int i, const Box<T>& box, T area, int64_t category, T threshold,
                                   bool has_categories) const {
    return (!has_categories || categories[i] == category) &&
           iou_exceeds(boxes[i], areas[i], box, area, threshold);
  }
  __device__ bool removes_huge(int i, const Box<T>& box, T area, int64_t category, T threshold,
                               bool has_categories) const {
    return (is_huge(areas[i]) || is_huge(area)) && (!has_categories || categories[i] == category) &&
           removes_as_huge(boxes[i], box, threshold);
  }
};

// The candidate that a thread holds.
template <typename T, typename Score>
struct Candidate {
  KeyOf<Score> key;
  bool exists;
  Box<T> box;
  T area;
  int64_t category;
};

// Give thread t the t-th candidate of the image, and write the boxes of all candidates to `candidates`, which
// shares its memory with `exchange`. The function ends with a barrier. The first `count` threads hold
// candidates.
template <typename T, typename Score>
__device__ Candidate<T, Score> rank_candidates(const NmsProblem& problem, int64_t image,
                                               unsigned char* memory, Candidates<T>& candidates, int& count) {
  const int thread = static_cast<int>(threadIdx.x);
  auto* exchange = reinterpret_cast<KeyOf<Score>*>(memory);
  KeyOf<Score> key = {0, 0};
  if (problem.per_image > blockDim.x) {
    key = select_candidates<Score>(problem, image, exchange);
  } else if (thread < problem.per_image) {
    key = make_key<Score>(problem, image, thread);
  }
  key = sort_descending(key, exchange);

  Candidate<T, Score> own = {key, !key.is_none() && thread < problem.max_candidates, {0, 0, 0, 0}, 0, 0};
  const int64_t slot = image * problem.per_image + (own.exists ? key.index() : 0);
  if (own.exists) own.box = load_box<T>(problem.boxes, slot);
  own.area = nms_area(own.box);
  candidates.any_huge = __syncthreads_or(is_huge(own.area));  // after which `exchange` is no longer read
  candidates.boxes[thread] = own.box;
  candidates.areas[thread] = own.area;
  if (problem.has_categories && own.exists) {
    own.category = static_cast<const int64_t*>(problem.categories.data)[problem.categories.offset(slot)];
    candidates.categories[thread] = own.category;
  }
  count = __syncthreads_count(own.exists);
  return own;
}

// Return, to every lane, the mask of the candidates that stay, of 32 candidates with one in each lane. A
// candidate of `alive` stays if no staying candidate removes it. `removers`: the earlier candidates that
// would remove the lane's candidate.
//
// The first guess is that all alive candidates stay. Round k makes candidate k right; the rounds end when
// nothing changes. Few rounds are needed unless boxes form long chains.
__device__ __forceinline__ unsigned int kept_of_32(unsigned int alive, unsigned int removers) {
  const bool is_alive = alive >> (threadIdx.x % 32) & 1u;
  unsigned int kept = alive, before;
  do {
    before = kept;
    kept = __ballot_sync(kFullWarp, is_alive && (removers & before) == 0);
  } while (kept != before);
  return kept;
}

// Write the first max_detections of the kept candidates; `kept_words` has one bit for each candidate. The
// caller has passed a barrier after writing `kept_words`.
template <typename Key>
__device__ void write_image(const NmsProblem& problem, int64_t image, const Key& key,
                            const unsigned int* kept_words, int64_t kept_count) {
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  int64_t rank = 0;
  for (int word = 0; word < warp; ++word) {
    rank += __popc(kept_words[word]);
  }
  const unsigned int own_word = kept_words[warp];
  rank += __popc(own_word & ((1u << lane) - 1));
  if ((own_word >> lane & 1u) && rank < problem.max_detections) {
    write_detection(problem, image, rank, key.index());
  }
  const int64_t written = min(kept_count, problem.max_detections);
  if (thread == 0) problem.out_counts[image] = static_cast<int32_t>(written);
  for (int64_t padding = written + thread; padding < problem.max_detections; padding += blockDim.x) {
    write_padding(problem, image, padding);
  }
}

// Threads for an image: a power of two, one for each candidate.
inline int nms_threads(const NmsProblem& problem) {
  int threads = 32;
  while (threads < problem.per_image && threads < kMaxNmsThreads) {
    threads *= 2;
  }
  return threads;
}

// Bytes of dynamic shared memory that rank_candidates() needs.
template <typename T, typename Score>
size_t ranking_bytes(int threads, bool has_categories) {
  return std::max(Candidates<T>::bytes(threads, has_categories), threads * sizeof(KeyOf<Score>));
}

// Launch a kernel that ranks the candidates of an image in each block.
template <typename T, typename Score, typename Kernel, typename... Arguments>
cudaError_t launch_ranking(Kernel kernel, const NmsProblem& problem, dim3 blocks, cudaStream_t stream,
                           Arguments... arguments) {
  // CUDA grants more than 48 KiB, static memory included, only on request. Always request the maximum: the
  // setting holds for all launches, and the launch of another thread must not find too little.
  if (cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                           static_cast<int>(ranking_bytes<T, Score>(kMaxNmsThreads, true))) != cudaSuccess) {
    return cudaGetLastError();  // clear the error, or a later launch would report it
  }
  const int threads = nms_threads(problem);
  kernel<<<blocks, threads, ranking_bytes<T, Score>(threads, problem.has_categories), stream>>>(problem,
                                                                                                arguments...);
  return cudaGetLastError();
}

}  // namespace lensbox
