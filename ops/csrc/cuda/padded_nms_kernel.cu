// NMS of a batch: a block an image, or a cluster of blocks if the batch has fewer images than the device has
// multiprocessors.
//
//   1. rank      With at most kMaxNmsThreads candidates an image, each block ranks them
//   (padded_nms_rank.cuh).
//                Otherwise they have been sorted before (padded_nms_sort.cu).
//   2. suppress  chunk after chunk of candidates, until max_detections are kept:
//        overlaps  The cluster's warps find out which candidates of the chunk each kept or earlier candidate
//                  would remove, as words of 32 bits, in the shared memory of the cluster's first block.
//        resolve   That block's first warp goes through the words: 32 candidates at a time.
//        append    The kept candidates are written, and join those that later chunks are tested against.
//
// Within a cluster each block ranks and reads all candidates itself: that is faster than to share them.
// Atomics only set bits, so the result is deterministic. The arithmetic is the CPU kernel's, to the bit.

#include "device.cuh"
#include "launch.h"
#include "launchers.h"
#include "padded_nms_rank.cuh"

namespace lensbox {
namespace {

// Shared memory of a block: what every launch is granted, and more than the kernel's static part.
constexpr int kGrantedBytes = 48 << 10;
constexpr int kStaticBytes = 2048;

constexpr int kMaxThreadsAlone = 256;  // of a block that is faster alone than in a cluster
constexpr int kMaxCluster = 8;
constexpr int kChunk = 256;  // candidates; of a block alone, and the least of a cluster

constexpr int kMaxGroups = 32;  // of 32 candidates in a chunk
constexpr int kRows = 2;        // later candidates that a lane compares with the same earlier ones

// Boxes with what the comparisons need, in shared memory: first the kept candidates, or the part of them that
// has room, then the candidates of the chunk.
template <typename T>
struct Columns {
  Box<T>* boxes;
  T* areas;
  int64_t* categories;

  static LENSBOX_HOST_DEVICE size_t bytes(int count, bool has_categories) {
    return count * (sizeof(Box<T>) + sizeof(T) + (has_categories ? sizeof(int64_t) : 0));
  }

  __device__ Columns(unsigned char* memory, int count)
      : boxes(reinterpret_cast<Box<T>*>(memory)),
        areas(reinterpret_cast<T*>(boxes + count)),
        categories(reinterpret_cast<int64_t*>(areas + count)) {}

  // Write a column: box `index` of an image, or a column that nothing reads if index is -1. Return whether
  // the box is huge.
  __device__ bool load(const NmsProblem& problem, int64_t image, int64_t index, int at) const {
    const int64_t slot = image * problem.per_image + index;
    const Box<T> box = index >= 0 ? load_box<T>(problem.boxes, slot) : Box<T>{0, 0, 0, 0};
    boxes[at] = box;
    areas[at] = nms_area(box);
    if (problem.has_categories) {
      const auto* const all = static_cast<const int64_t*>(problem.categories.data);
      categories[at] = index >= 0 ? all[problem.categories.offset(slot)] : 0;
    }
    return is_huge(nms_area(box));
  }
};

// The candidates that are being tested: columns from `begin` on, of which `count` hold a candidate.
struct Chunk {
  int size, begin, count;
};

// Set bit j of words[r] if column `first` + j would remove column `row` + 32 r. All pairs are tested for
// their overlap first, without a branch; few overlap, so the rest is done for those only.
template <typename T>
__device__ __forceinline__ void find_removers(const NmsProblem& problem, const Columns<T>& columns, int first,
                                              int row, bool any_huge, unsigned int (&words)[kRows]) {
  const T threshold = static_cast<T>(problem.iou_threshold);
  Box<T> boxes[kRows];
  T areas[kRows];
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    boxes[r] = columns.boxes[row + 32 * r];
    areas[r] = columns.areas[row + 32 * r];
    words[r] = 0;
  }
  for (int part = 0; part < 32; part += 8) {  // 32 at once would not fit the instruction cache
    unsigned int bits[kRows] = {};
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const Box<T> other = columns.boxes[first + part + j];
      const T area = columns.areas[first + part + j];
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        if (iou_exceeds(other, area, boxes[r], areas[r], threshold)) bits[r] |= 1u << j;
      }
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      words[r] |= bits[r] << part;
    }
  }
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    for (int j = 0; any_huge && j < 32; ++j) {
      if ((is_huge(areas[r]) || is_huge(columns.areas[first + j])) &&
          removes_as_huge(columns.boxes[first + j], boxes[r], threshold)) {
        words[r] |= 1u << j;
      }
    }
    if (!problem.has_categories) continue;
    for (unsigned int bits = words[r]; bits != 0; bits &= bits - 1) {
      const int j = __ffs(static_cast<int>(bits)) - 1;
      if (columns.categories[first + j] != columns.categories[row + 32 * r]) words[r] &= ~(1u << j);
    }
  }
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

// What the blocks of a cluster tell each other, in the shared memory of each: a bit for each candidate of the
// chunk.
struct Masks {
  unsigned int removed[kMaxGroups];  // by kept candidates of earlier chunks; in the first block
  unsigned int kept[kMaxGroups];     // the same in all blocks
};

// Find the overlaps of the chunk's candidates with `kept` kept ones, and, if with_own, among
// themselves. A warp takes 64 of the later by 32 of the earlier candidates at a time, an item. Bit b of
// words[g * size + i] says whether candidate 32 g + b of the chunk would remove the later candidate i.
template <typename T>
__device__ void find_overlaps(const NmsProblem& problem, const Cluster& cluster, const Columns<T>& columns,
                              int kept, const Chunk& chunk, bool with_own, bool any_huge,
                              unsigned int* own_words, Masks& masks) {
  const int lane = threadIdx.x % 32;
  unsigned int* const words = cluster.at(own_words, 0);
  unsigned int* const removed = cluster.at(masks.removed, 0);
  const int row_blocks = (chunk.count + 32 * kRows - 1) / (32 * kRows), kept_groups = (kept + 31) / 32;
  // Row block b has kRows * (b + 1) groups of its own: as many as a constant with the one at the other end.
  const int of_kept = kept_groups * row_blocks, of_pair = kRows * (row_blocks + 1);
  const int items = of_kept + (with_own ? (row_blocks + 1) / 2 * of_pair : 0);
  // Neighbouring items go to different blocks, so that all blocks have about as many.
  const int step = static_cast<int>(blockDim.x / 32 * cluster.blocks);
  for (int item = static_cast<int>(threadIdx.x / 32 * cluster.blocks + cluster.rank); item < items;
       item += step) {
    const bool is_kept = item < of_kept;
    int row_block, group;
    if (is_kept) {
      row_block = item / kept_groups;
      group = item - row_block * kept_groups;
    } else {
      const int pair = (item - of_kept) / of_pair;
      row_block = row_blocks - 1 - pair;
      group = item - of_kept - pair * of_pair;
      if (group >= kRows * (row_block + 1)) {
        group -= kRows * (row_block + 1);
        if (row_block == pair) continue;  // the middle one is alone
        row_block = pair;
      }
    }
    const int first = 32 * group, rows = 32 * kRows * row_block;
    unsigned int found[kRows];
    find_removers(problem, columns, is_kept ? first : chunk.begin + first, chunk.begin + rows + lane,
                  any_huge, found);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const int row = rows + 32 * r + lane;
      if (is_kept) {
        if (kept - first < 32) found[r] &= (1u << (kept - first)) - 1;
        const unsigned int gone = __ballot_sync(kFullWarp, found[r] != 0);
        if (lane == 0 && gone != 0) atomicOr(&removed[row / 32], gone);
      } else if (row >= first) {
        words[group * chunk.size + row] = row - first < 32 ? found[r] & ((1u << lane) - 1) : found[r];
      }
    }
  }
}

// Find out which of the chunk's candidates stay, up to the one that completes the wanted number and at most
// 255 after it, and tell all blocks. The threads of the first block call this. Its first warp resolves
// kAtOnce groups, whose words it holds in registers; then each warp finds out which candidates of a later
// group they remove.
__device__ __forceinline__ void resolve(const Cluster& cluster, const Chunk& chunk, int wanted,
                                        const unsigned int* words, Masks& masks) {
  constexpr int kAtOnce = 8;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
  const int groups = (chunk.count + 31) / 32;
  const auto word_of = [&](int group, int later) { return words[group * chunk.size + 32 * later + lane]; };
  for (int base = 0;; base += kAtOnce) {
    if (warp == 0) {
      unsigned int removers[kAtOnce][kAtOnce], gone[kAtOnce], kept_word = 0;
#pragma unroll
      for (int g = 0; g < kAtOnce; ++g) {
        const int here = wanted > 0 ? chunk.count - 32 * (base + g) : 0;
        gone[g] = masks.removed[base + g] | (here >= 32 ? 0 : here > 0 ? kFullWarp << here : kFullWarp);
#pragma unroll
        for (int later = g; later < kAtOnce; ++later) {
          removers[g][later] = base + later < groups ? word_of(base + g, base + later) : 0;
        }
      }
#pragma unroll
      for (int g = 0; g < kAtOnce; ++g) {
        const unsigned int kept = kept_of_32(~gone[g], removers[g][g]);
        if (lane == g) kept_word = kept;
#pragma unroll
        for (int later = g + 1; later < kAtOnce; ++later) {
          gone[later] |= __ballot_sync(kFullWarp, (removers[g][later] & kept) != 0);
        }
      }
      if (lane < kAtOnce) masks.kept[base + lane] = kept_word;
    }
    if (32 * (base + kAtOnce) >= chunk.size) break;
    __syncthreads();
    unsigned int kept[kAtOnce];
#pragma unroll
    for (int g = 0; g < kAtOnce; ++g) {
      kept[g] = masks.kept[base + g];
      wanted -= __popc(kept[g]);
    }
    for (int later = base + kAtOnce + warp; later < groups && wanted > 0; later += warps) {
      unsigned int found = 0;
#pragma unroll
      for (int g = 0; g < kAtOnce; ++g) {
        found |= word_of(base + g, later) & kept[g];
      }
      const unsigned int gone = __ballot_sync(kFullWarp, found != 0);
      if (lane == 0) masks.removed[later] |= gone;
    }
    __syncthreads();
  }
  if (warp > 0) return;
  __syncwarp();
  masks.removed[lane] = 0;
  for (unsigned int block = 1; block < cluster.blocks; ++block) {
    cluster.at(masks.kept, block)[lane] = masks.kept[lane];
  }
}

// Each cluster takes one image. kSorted: `order` has slots, a thread reads a candidate of each chunk, and the
// kept candidates have columns of their own. Otherwise the thread holds one candidate of the image in its
// column, and the kept ones move up to the first columns.
template <typename T, typename Score, bool kSorted>
__global__ void __launch_bounds__(kMaxNmsThreads)
    padded_nms_kernel(const __grid_constant__ NmsProblem problem, const NmsOrder order, int chunk_size) {
  extern __shared__ __align__(16) unsigned char memory[];
  __shared__ Masks masks;
  begin_early();
  const Cluster cluster;
  const bool has_categories = problem.has_categories;
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32;
  const int total = static_cast<int>(blockDim.x), capacity = kSorted ? total - chunk_size : total;
  const int64_t image_of_order = blockIdx.x / cluster.blocks, image = order.first_image + image_of_order;

  // The words lie behind the columns, and the keys of the ranking in the same place.
  const Columns<T> columns(memory, total);
  auto* const words = reinterpret_cast<unsigned int*>(memory + Columns<T>::bytes(total, has_categories));
  if (thread < kMaxGroups) masks.removed[thread] = 0;
  int64_t index = -1;  // of the thread's candidate; -1: none
  int available = 0;
  bool any_huge = false;
  if constexpr (!kSorted) {
    const auto key = ranked_key<Score>(problem, image, reinterpret_cast<KeyOf<Score>*>(memory));
    if (!key.is_none()) index = key.index();
    any_huge = __syncthreads_or(columns.load(problem, image, index, thread));
    available = __syncthreads_count(index >= 0);
  }
  cluster.sync();  // `removed` is 0, and all blocks run

  // Candidates, and so what is kept, are fewer than 2^31.
  const int most = static_cast<int>(min(problem.max_detections, problem.per_image));
  int kept_count = 0;
  for (int first = 0; kept_count < most; first += chunk_size) {
    Chunk chunk = {chunk_size, capacity, 0};
    int at = thread;  // the place of the thread's candidate in the chunk
    if constexpr (kSorted) {
      index = -1;
      if (at < chunk_size && first + at < min(problem.per_image, problem.max_candidates)) {
        const int64_t slot = order.slots[image_of_order * problem.per_image + first + at] +
                             order.first_image * problem.per_image;
        if (candidate_bits<Score>(problem, slot) != 0) index = slot - image * problem.per_image;
      }
      const bool huge = at < chunk_size && columns.load(problem, image, index, capacity + at);
      any_huge = __syncthreads_or(any_huge || huge);
      chunk.count = __syncthreads_count(index >= 0);
    } else {
      chunk.begin = first;
      chunk.count = min(available - first, chunk_size);
      at = thread - first;
    }
    if (chunk.count <= 0) break;

    // Kept candidates for which there is no room are read again, part by part.
    for (int part = 0;; part += capacity) {
      const int kept = min(kept_count - part, capacity);
      if (kSorted && kept_count > capacity) {
        __syncthreads();  // the columns have been read
        if (thread < kept) {
          const int64_t* const kept_indices = problem.out_indices + image * problem.max_detections + part;
          columns.load(problem, image, __ldcg(&kept_indices[thread]), thread);
        }
        __syncthreads();
      }
      const bool is_last = part + kept == kept_count;
      find_overlaps(problem, cluster, columns, kept, chunk, is_last, any_huge, words, masks);
      if (is_last) break;
    }
    cluster.sync();
    if (cluster.rank == 0) resolve(cluster, chunk, most - kept_count, words, masks);
    cluster.sync();

    // Each lane counts what is kept of one group; the thread's group is lane at / 32.
    const unsigned int kept_word = 32 * lane < chunk_size ? masks.kept[lane] : 0;
    int up_to = __popc(kept_word);  // and with the lane's group
#pragma unroll
    for (int distance = 1; distance < 32; distance *= 2) {
      const int before = __shfl_up_sync(kFullWarp, up_to, distance);
      if (lane >= distance) up_to += before;
    }
    const bool is_here = 0 <= at && at < chunk_size;
    const int group = is_here ? at / 32 : 0;
    const unsigned int own_word = __shfl_sync(kFullWarp, kept_word, group);
    const int rank = kept_count + __shfl_sync(kFullWarp, up_to, group) - __popc(own_word >> lane);
    kept_count += __shfl_sync(kFullWarp, up_to, 31);
    const bool is_kept = is_here && (own_word >> lane & 1u);
    const int from = is_kept ? chunk.begin + at : 0;
    const Box<T> box = columns.boxes[from];
    const T area = columns.areas[from];
    const int64_t category = has_categories ? columns.categories[from] : 0;
    __syncthreads();  // all columns that move have been read
    if (is_kept && rank < capacity) {
      columns.boxes[rank] = box;
      columns.areas[rank] = area;
      if (has_categories) columns.categories[rank] = category;
    }
    // The blocks share the writing, a warp each.
    if (is_kept && rank < most && thread / 32 % cluster.blocks == cluster.rank) {
      write_detection(problem, image, rank, index);
    }
    if constexpr (kSorted) {
      cluster.sync();  // the indices can be read, and the columns
    } else {
      __syncthreads();  // the columns can be read
    }
  }
  if (cluster.rank > 0) return;
  const int written = min(kept_count, most);
  if (thread == 0) problem.out_counts[image] = written;
  for (int64_t rank = written + thread; rank < problem.max_detections; rank += total) {
    write_padding(problem, image, rank);
  }
}

// Bytes of dynamic shared memory of a block.
template <typename T, typename Score>
size_t shared_bytes(int threads, int chunk, bool has_categories) {
  return std::max(Columns<T>::bytes(threads, has_categories) + static_cast<size_t>(chunk) * chunk / 8,
                  2 * threads * sizeof(KeyOf<Score>));
}

}  // namespace

cudaError_t launch_nms(const NmsProblem& problem, const NmsOrder& order, cudaStream_t stream) {
  int threads = 32 * kRows;
  while (threads < problem.per_image && threads < kMaxNmsThreads) {
    threads *= 2;
  }
  const bool is_sorted = order.slots != nullptr;
  // Clusters of two fit anywhere; larger ones need multiprocessors side by side, so some stay idle.
  int64_t cluster = 1;
  while (has_clusters() && threads > kMaxThreadsAlone && cluster < kMaxCluster &&
         2 * cluster * order.images <= (cluster == 1 ? multiprocessors() : multiprocessors() * 4 / 5)) {
    cluster *= 2;
  }
  // A cluster spends more time on each chunk than on its pairs, so it takes all that will be needed at once.
  int chunk = kChunk;
  while (cluster > 1 && 2 * chunk < 3 * problem.max_detections &&
         chunk < (is_sorted ? 2 * kChunk : threads)) {
    chunk *= 2;
  }
  chunk = std::min(chunk, threads);
  return with_math_types(problem, [&](auto math, auto score) {
    using T = decltype(math);
    using Score = decltype(score);
    const auto kernel = is_sorted ? padded_nms_kernel<T, Score, true> : padded_nms_kernel<T, Score, false>;
    const int most_bytes = device_attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin) - kStaticBytes;
    while (shared_bytes<T, Score>(threads, chunk, problem.has_categories) > static_cast<size_t>(most_bytes)) {
      chunk /= 2;
    }
    const size_t bytes = shared_bytes<T, Score>(threads, chunk, problem.has_categories);
    // CUDA grants more than 48 KiB, static memory included, only on request. Always request the maximum: the
    // setting holds for all launches, and the launch of another thread must not find too little.
    if (bytes > kGrantedBytes - kStaticBytes) {
      LENSBOX_RETURN_IF_FAILED(
          cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, most_bytes));
    }
    LaunchShape shape(static_cast<int>(cluster * order.images), threads);
    shape.cluster = static_cast<unsigned int>(cluster);
    shape.shared_bytes = bytes;
    return launch(Start::kProgrammatic, kernel, shape, stream, problem, order, chunk);
  });
}

}  // namespace lensbox
