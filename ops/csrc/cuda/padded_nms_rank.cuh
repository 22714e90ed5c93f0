// Rank the candidates of an image within a block: one candidate a thread; blockDim.x is a power of two of at
// least 32.
#pragma once

#include <climits>

#include "device.cuh"
#include "launchers.h"
#include "padded_nms_device.cuh"

namespace lensbox {

// Order bits, then the inverted index. Equal scores: the smaller index is the greater key. Keys of no
// candidate have order 0; they differ, too.
template <typename Bits>
struct alignas(2 * sizeof(Bits)) Key {
  Bits order;
  uint32_t inverted_index;

  __device__ int64_t index() const { return UINT_MAX - inverted_index; }
  __device__ bool is_none() const { return order == 0; }
  __device__ bool operator>(const Key& other) const {
    if constexpr (sizeof(Bits) == 4) {
      return (uint64_t{order} << 32 | inverted_index) > (uint64_t{other.order} << 32 | other.inverted_index);
    }
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
  return {candidate_bits<Score>(problem, image * problem.per_image + index),
          UINT_MAX - static_cast<uint32_t>(index)};
}

// Return the key of a thread without a candidate.
template <typename K>
__device__ K no_key() {
  return {0, UINT_MAX - threadIdx.x};
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
  const K key = static_cast<int>(threadIdx.x) < found ? selected[threadIdx.x] : no_key<K>();
  __syncthreads();  // selected is used again
  return key;
}

// Sort one key a thread, descending; `exchange` has room for two keys a thread. Each warp sorts its keys by a
// bitonic network; then neighbouring runs are merged: a key's place is its place in its own run plus the
// number of keys of the other run that come before it.
template <typename K>
__device__ K sort_descending(K key, K* exchange) {
  for (unsigned int size = 2; size <= 32; size *= 2) {
    for (unsigned int distance = size / 2; distance > 0; distance /= 2) {
      const K other = {__shfl_xor_sync(kFullWarp, key.order, distance),
                       __shfl_xor_sync(kFullWarp, key.inverted_index, distance)};
      const bool first_of_pair = (threadIdx.x & distance) == 0;
      const bool descending = size == 32 || (threadIdx.x & size) == 0;
      if ((first_of_pair == descending) != (key > other)) key = other;
    }
  }
  if (blockDim.x == 32) return key;
  K *from = exchange, *to = exchange + blockDim.x;
  from[threadIdx.x] = key;
  __syncthreads();
  for (unsigned int run = 32; run < blockDim.x; run *= 2) {
    const K* const others = from + ((threadIdx.x ^ run) & ~(run - 1));
    unsigned int before = 0;
    for (unsigned int step = run / 2; step > 0; step /= 2) {
      if (others[before + step - 1] > key) before += step;
    }
    if (others[before] > key) ++before;
    to[(threadIdx.x & ~(2 * run - 1)) + (threadIdx.x & (run - 1)) + before] = key;
    __syncthreads();
    key = to[threadIdx.x];
    K* const read = from;
    from = to;
    to = read;
  }
  return key;
}

// Return the key of the thread's candidate: thread t holds the t-th of the image. `exchange` has room for two
// keys a thread.
template <typename Score>
__device__ KeyOf<Score> ranked_key(const NmsProblem& problem, int64_t image, KeyOf<Score>* exchange) {
  using K = KeyOf<Score>;
  K key = no_key<K>();
  if (problem.per_image > blockDim.x) {
    key = select_candidates<Score>(problem, image, exchange);
  } else if (threadIdx.x < problem.per_image) {
    key = make_key<Score>(problem, image, threadIdx.x);
  }
  key = sort_descending(key, exchange);
  __syncthreads();  // `exchange` may be written again
  return threadIdx.x < problem.max_candidates ? key : no_key<K>();
}

}  // namespace lensbox
