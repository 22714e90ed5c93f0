// NMS of a batch with more candidates than one block holds.
//
//   1. rank      cub sorts all boxes by score, then, stably, by image; equal scores keep their order, which
//                is that of their indices.
//   2. gather    the candidates of each image, in order, as boxes
//   3. overlap   one bit for each pair: row i, bit j is set where i < j and j would be removed by i
//   4. resolve   a block an image walks the rows 64 at a time, and writes

#include <cub/device/device_radix_sort.cuh>

#include "launch.h"
#include "padded_nms_device.cuh"

namespace lensbox {
namespace {

using Word = unsigned long long;

constexpr int kWordBits = 64;
constexpr int kThreads = 256;
constexpr int kBlocksPerSm = 8;
constexpr int kResolveThreads = 512;
constexpr int64_t kOverlapBudget = int64_t{1} << 30;  // bytes

template <typename Score>
using BitsOf = decltype(order_bits(Score{}));

// The pieces of the workspace.
template <typename T, typename Score>
struct Workspace {
  BitsOf<Score>* keys;         // [batch * per_image] order bits of the scores
  BitsOf<Score>* sorted_keys;  // the same, by score
  int32_t* slots;              // [batch * per_image] image * per_image + index
  int32_t* sorted_slots;
  int32_t* images;  // [batch * per_image] image of each of sorted_slots
  int32_t* sorted_images;
  Box<T>* boxes;    // [batch, candidates]
  int32_t* counts;  // [batch] candidates of each image
  Word* overlaps;   // [images of a slice, candidates, words]
  void* sort_memory;
  size_t sort_bytes;
  size_t bytes;  // of everything
};

int64_t words_of(const NmsProblem& problem) {
  return (candidates_of(problem) + kWordBits - 1) / kWordBits;
}

int64_t images_of_slice(const NmsProblem& problem) {
  const int64_t bytes_of_image =
      candidates_of(problem) * words_of(problem) * static_cast<int64_t>(sizeof(Word));
  return std::clamp<int64_t>(kOverlapBudget / bytes_of_image, 1, problem.batch);
}

int image_bits(int64_t batch) {
  int bits = 0;
  while (int64_t{1} << bits < batch)
    ++bits;
  return bits;
}

template <typename T, typename Score>
Workspace<T, Score> lay_out(const NmsProblem& problem, void* memory) {
  const int64_t total = problem.batch * problem.per_image;
  auto* const base = static_cast<unsigned char*>(memory);
  size_t used = 0;
  const auto take = [&](auto*& piece, int64_t count) {
    piece = reinterpret_cast<std::remove_reference_t<decltype(piece)>>(base + used);
    used += (count * sizeof(*piece) + 255) / 256 * 256;
  };
  Workspace<T, Score> w;
  take(w.keys, total);
  take(w.sorted_keys, total);
  take(w.slots, total);
  take(w.sorted_slots, total);
  take(w.images, total);
  take(w.sorted_images, total);
  take(w.boxes, problem.batch * candidates_of(problem));
  take(w.counts, problem.batch);
  take(w.overlaps, images_of_slice(problem) * candidates_of(problem) * words_of(problem));
  size_t by_score = 0, by_image = 0;
  cub::DeviceRadixSort::SortPairsDescending(nullptr, by_score, w.keys, w.sorted_keys, w.slots, w.sorted_slots,
                                            total);
  cub::DeviceRadixSort::SortPairs(nullptr, by_image, w.images, w.sorted_images, w.sorted_slots, w.slots,
                                  total, 0, image_bits(problem.batch));
  w.sort_bytes = std::max(by_score, by_image);
  unsigned char* sort_memory;
  take(sort_memory, static_cast<int64_t>(w.sort_bytes));
  w.sort_memory = sort_memory;
  w.bytes = used;
  return w;
}

// One thread computes the key of one box.
template <typename T, typename Score>
__global__ void __launch_bounds__(kThreads)
    make_keys_kernel(const __grid_constant__ NmsProblem problem, Workspace<T, Score> w) {
  const int64_t total = problem.batch * problem.per_image;
  const int64_t step = int64_t{gridDim.x} * kThreads;
  for (int64_t slot = int64_t{blockIdx.x} * kThreads + threadIdx.x; slot < total; slot += step) {
    w.keys[slot] = candidate_bits<Score>(problem, slot);
    w.slots[slot] = static_cast<int32_t>(slot);
  }
}

// One thread handles one box, in the order by score.
__global__ void __launch_bounds__(kThreads)
    find_images_kernel(const int32_t* slots, int32_t* images, int64_t total, int64_t per_image) {
  const int64_t step = int64_t{gridDim.x} * kThreads;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < total; i += step) {
    images[i] = static_cast<int32_t>(slots[i] / per_image);
  }
}

// A block an image: reads its candidates' boxes in order.
template <typename T, typename Score>
__global__ void __launch_bounds__(kThreads)
    gather_kernel(const __grid_constant__ NmsProblem problem, Workspace<T, Score> w, const int32_t* order,
                  int64_t candidates) {
  const int64_t image = blockIdx.x;
  const int32_t* slots = order + image * problem.per_image;
  Box<T>* boxes = w.boxes + image * candidates;
  int count = 0;
  for (int64_t first = 0; first < candidates; first += kThreads) {
    const int64_t i = first + threadIdx.x;
    const bool is_candidate = i < candidates && w.keys[slots[i]] != 0;
    if (is_candidate) boxes[i] = load_box<T>(problem.boxes, slots[i]);
    count += __syncthreads_count(is_candidate);
  }
  if (threadIdx.x == 0) w.counts[image] = count;
}

// A block computes the overlaps of 64 rows with 64 columns: a thread a row, the columns' boxes in shared
// memory. blockIdx: x column word, y row word, z image of the slice. Only words on or above the diagonal are
// ever read.
template <typename T, typename Score>
__global__ void __launch_bounds__(kWordBits)
    overlap_kernel(const __grid_constant__ NmsProblem problem, Workspace<T, Score> w, const int32_t* order,
                   int64_t candidates, int64_t first_image) {
  __shared__ Box<T> columns[kWordBits];
  __shared__ T areas[kWordBits];
  __shared__ int64_t categories[kWordBits];
  if (blockIdx.x < blockIdx.y) return;
  const int64_t image = first_image + blockIdx.z;
  const int64_t count = w.counts[image];
  const int64_t row = int64_t{blockIdx.y} * kWordBits + threadIdx.x;
  const int64_t first_column = int64_t{blockIdx.x} * kWordBits;
  if (int64_t{blockIdx.y} * kWordBits >= count || first_column >= count) return;

  const Box<T>* boxes = w.boxes + image * candidates;
  const auto category_of = [&](int64_t i) {
    const int64_t slot = order[image * problem.per_image + i];
    return static_cast<const int64_t*>(problem.categories.data)[problem.categories.offset(slot)];
  };
  const Box<T> box = row < count ? boxes[row] : Box<T>{0, 0, 0, 0};
  const T area = nms_area(box);
  bool huge = is_huge(area);
  const int64_t own_column = first_column + threadIdx.x;
  if (own_column < count) {
    columns[threadIdx.x] = boxes[own_column];
    areas[threadIdx.x] = nms_area(boxes[own_column]);
    huge = huge || is_huge(areas[threadIdx.x]);
    if (problem.has_categories) categories[threadIdx.x] = category_of(own_column);
  }
  const bool any_huge = __syncthreads_or(huge);
  if (row >= count) return;
  const int64_t category = problem.has_categories ? category_of(row) : 0;
  const T threshold = static_cast<T>(problem.iou_threshold);
  const auto find_removed = [&](auto removes) {
    Word found = 0;
    for (int bit = 0; bit < kWordBits && first_column + bit < count; ++bit) {
      if (first_column + bit <= row) continue;
      if (problem.has_categories && categories[bit] != category) continue;
      if (removes(bit)) found |= Word{1} << bit;
    }
    return found;
  };
  Word word =
      find_removed([&](int bit) { return iou_exceeds(box, area, columns[bit], areas[bit], threshold); });
  if (any_huge) {
    word |= find_removed([&](int bit) {
      return (is_huge(area) || is_huge(areas[bit])) && removes_as_huge(box, columns[bit], threshold);
    });
  }
  const int64_t words = (candidates + kWordBits - 1) / kWordBits;
  w.overlaps[(int64_t{blockIdx.z} * candidates + row) * words + blockIdx.x] = word;
}

// One block resolves one image. `removed` has a bit for each candidate. For each group of 64 candidates,
// every thread resolves the 64 rows in turn from the diagonal words; then each thread takes one later word
// and removes the candidates that the kept rows remove.
__global__ void __launch_bounds__(kResolveThreads)
    resolve_kernel(const __grid_constant__ NmsProblem problem, const Word* overlaps, const int32_t* counts,
                   const int32_t* order, int64_t candidates, int64_t first_image) {
  extern __shared__ Word removed[];
  __shared__ Word diagonal[kWordBits];
  const int64_t image = first_image + blockIdx.x;
  const int64_t words = (candidates + kWordBits - 1) / kWordBits;
  const Word* rows = overlaps + int64_t{blockIdx.x} * candidates * words;
  const int64_t count = counts[image];
  for (int64_t word = threadIdx.x; word < words; word += kResolveThreads) {
    removed[word] = 0;
  }
  int64_t kept_count = 0;
  for (int64_t word = 0; word * kWordBits < count && kept_count < problem.max_detections; ++word) {
    const int64_t first = word * kWordBits;
    __syncthreads();  // removed[word] is final, diagonal no longer read
    if (threadIdx.x < kWordBits) {
      const int64_t row = first + threadIdx.x;
      diagonal[threadIdx.x] = row < count ? rows[row * words + word] : 0;
    }
    __syncthreads();
    const int in_word = static_cast<int>(min(static_cast<int64_t>(kWordBits), count - first));
    Word gone = removed[word], kept = 0;
    for (int row = 0; row < in_word; ++row) {
      if (gone >> row & 1) continue;
      kept |= Word{1} << row;
      gone |= diagonal[row];
    }
    for (int64_t later = word + 1 + threadIdx.x; later * kWordBits < count; later += kResolveThreads) {
      Word removes = 0;
      for (Word others = kept; others != 0; others &= others - 1) {
        removes |= rows[(first + __ffsll(static_cast<long long>(others)) - 1) * words + later];
      }
      removed[later] |= removes;
    }
    if (threadIdx.x < kWordBits && (kept >> threadIdx.x & 1)) {
      const int64_t rank = kept_count + __popcll(kept & ((Word{1} << threadIdx.x) - 1));
      const int64_t slot = order[image * problem.per_image + first + threadIdx.x];
      if (rank < problem.max_detections)
        write_detection(problem, image, rank, slot - image * problem.per_image);
    }
    kept_count += __popcll(kept);
  }
  const int64_t written = min(kept_count, problem.max_detections);
  if (threadIdx.x == 0) problem.out_counts[image] = static_cast<int32_t>(written);
  for (int64_t rank = written + threadIdx.x; rank < problem.max_detections; rank += kResolveThreads) {
    write_padding(problem, image, rank);
  }
}

template <typename T, typename Score>
cudaError_t launch(const NmsProblem& problem, void* memory, cudaStream_t stream) {
  const Workspace<T, Score> w = lay_out<T, Score>(problem, memory);
  const int64_t total = problem.batch * problem.per_image;
  const int64_t candidates = candidates_of(problem);
  const int blocks = grid_size(total, kThreads, kBlocksPerSm);
  size_t sort_bytes = w.sort_bytes;

  make_keys_kernel<<<blocks, kThreads, 0, stream>>>(problem, w);
  LENSBOX_RETURN_IF_FAILED(cub::DeviceRadixSort::SortPairsDescending(
      w.sort_memory, sort_bytes, w.keys, w.sorted_keys, w.slots, w.sorted_slots, total, 0,
      static_cast<int>(8 * sizeof(BitsOf<Score>)), stream));
  const int32_t* order = w.sorted_slots;
  if (problem.batch > 1) {
    find_images_kernel<<<blocks, kThreads, 0, stream>>>(w.sorted_slots, w.images, total, problem.per_image);
    LENSBOX_RETURN_IF_FAILED(cub::DeviceRadixSort::SortPairs(w.sort_memory, sort_bytes, w.images,
                                                             w.sorted_images, w.sorted_slots, w.slots, total,
                                                             0, image_bits(problem.batch), stream));
    order = w.slots;
  }
  gather_kernel<<<static_cast<unsigned int>(problem.batch), kThreads, 0, stream>>>(problem, w, order,
                                                                                   candidates);

  const auto words = static_cast<unsigned int>(words_of(problem));
  const int64_t slice = images_of_slice(problem);
  for (int64_t first = 0; first < problem.batch; first += slice) {
    const auto images = static_cast<unsigned int>(std::min(slice, problem.batch - first));
    overlap_kernel<<<dim3(words, words, images), kWordBits, 0, stream>>>(problem, w, order, candidates,
                                                                         first);
    resolve_kernel<<<images, kResolveThreads, words * sizeof(Word), stream>>>(problem, w.overlaps, w.counts,
                                                                              order, candidates, first);
  }
  return cudaGetLastError();
}

}  // namespace

size_t large_nms_workspace(const NmsProblem& problem) {
  return with_math_types(problem, [&](auto math, auto score) {
    return lay_out<decltype(math), decltype(score)>(problem, nullptr).bytes;
  });
}

cudaError_t launch_large_nms(const NmsProblem& problem, void* workspace, cudaStream_t stream) {
  if (problem.batch == 0) return cudaSuccess;
  return with_math_types(problem, [&](auto math, auto score) {
    return launch<decltype(math), decltype(score)>(problem, workspace, stream);
  });
}

}  // namespace lensbox
