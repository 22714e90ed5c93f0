// The entry of NMS, and the order of candidates where an image has more than a block can rank: cub sorts all
// boxes by score, then, stably, by image. Equal scores keep their order, which is that of their indices.

#include <cub/device/device_radix_sort.cuh>

#include "launch.h"
#include "padded_nms_device.cuh"

namespace lensbox {
namespace {

constexpr int kThreads = 256;
constexpr int kBlocksPerSm = 8;

// Images are sorted slice by slice if the workspace of all would be larger. One image may need more.
constexpr int64_t kWorkspaceBudget = int64_t{64} << 20;  // bytes

template <typename Score>
using BitsOf = decltype(order_bits(Score{}));

bool must_sort(const NmsProblem& problem) {
  return std::min(problem.per_image, problem.max_candidates) > kMaxNmsThreads;
}

int image_bits(int64_t images) {
  int bits = 0;
  while (int64_t{1} << bits < images)
    ++bits;
  return bits;
}

// The workspace of a slice: [images * per_image] of each buffer. Each sort moves numbers from one of two
// buffers to the other and back.
template <typename Score>
struct Workspace {
  cub::DoubleBuffer<BitsOf<Score>> keys;  // order bits of the scores
  cub::DoubleBuffer<int32_t> slots;       // image * per_image + index, in the slice
  cub::DoubleBuffer<int32_t> images;      // in the place of the keys, which are used before
  void* sort_memory;
  size_t sort_bytes;
  size_t bytes;  // of everything

  Workspace(int64_t images_of_slice, int64_t per_image, void* memory) {
    const int64_t total = images_of_slice * per_image;
    auto* const base = static_cast<unsigned char*>(memory);
    size_t used = 0;
    const auto take = [&](auto tag) {
      const auto piece = reinterpret_cast<typename decltype(tag)::type*>(base + used);
      used += (total * sizeof(*piece) + 255) / 256 * 256;
      return piece;
    };
    for (int i = 0; i < 2; ++i) {
      keys.d_buffers[i] = take(Type<BitsOf<Score>>{});
      slots.d_buffers[i] = take(Type<int32_t>{});
      images.d_buffers[i] = reinterpret_cast<int32_t*>(keys.d_buffers[i]);
    }
    size_t by_score = 0, by_image = 0;
    cub::DeviceRadixSort::SortPairsDescending(nullptr, by_score, keys, slots, total);
    cub::DeviceRadixSort::SortPairs(nullptr, by_image, images, slots, total, 0, image_bits(images_of_slice));
    sort_memory = base + used;
    sort_bytes = std::max(by_score, by_image);
    bytes = used + sort_bytes;
  }
};

template <typename Score>
int64_t images_of_slice(const NmsProblem& problem) {
  const int64_t of_box = 2 * (sizeof(BitsOf<Score>) + sizeof(int32_t));
  return std::clamp<int64_t>(kWorkspaceBudget / (of_box * problem.per_image), 1, problem.batch);
}

// One thread computes the key of one box.
template <typename Score>
__global__ void __launch_bounds__(kThreads)
    make_keys_kernel(const __grid_constant__ NmsProblem problem, int64_t first_slot, int64_t total,
                     BitsOf<Score>* keys, int32_t* slots) {
  const int64_t step = int64_t{gridDim.x} * kThreads;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < total; i += step) {
    keys[i] = candidate_bits<Score>(problem, first_slot + i);
    slots[i] = static_cast<int32_t>(i);
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

template <typename Score>
cudaError_t run_sorted(const NmsProblem& problem, void* memory, cudaStream_t stream) {
  const int64_t slice = images_of_slice<Score>(problem);
  for (int64_t first = 0; first < problem.batch; first += slice) {
    const int64_t images = std::min(slice, problem.batch - first), total = images * problem.per_image;
    Workspace<Score> w(slice, problem.per_image, memory);
    const int blocks = grid_size(total, kThreads, kBlocksPerSm);
    make_keys_kernel<Score><<<blocks, kThreads, 0, stream>>>(problem, first * problem.per_image, total,
                                                             w.keys.Current(), w.slots.Current());
    LENSBOX_RETURN_IF_FAILED(
        cub::DeviceRadixSort::SortPairsDescending(w.sort_memory, w.sort_bytes, w.keys, w.slots, total, 0,
                                                  static_cast<int>(8 * sizeof(BitsOf<Score>)), stream));
    if (images > 1) {
      find_images_kernel<<<blocks, kThreads, 0, stream>>>(w.slots.Current(), w.images.Current(), total,
                                                          problem.per_image);
      LENSBOX_RETURN_IF_FAILED(cub::DeviceRadixSort::SortPairs(w.sort_memory, w.sort_bytes, w.images, w.slots,
                                                               total, 0, image_bits(images), stream));
    }
    LENSBOX_RETURN_IF_FAILED(launch_nms(problem, {w.slots.Current(), first, images}, stream));
  }
  return cudaGetLastError();
}

}  // namespace

size_t lensbox_cuda_padded_nms_workspace(const NmsProblem& problem) {
  if (problem.batch == 0 || !must_sort(problem)) return 0;
  return with_math_types(problem, [&](auto /*math*/, auto score) {
    using Score = decltype(score);
    return Workspace<Score>(images_of_slice<Score>(problem), problem.per_image, nullptr).bytes;
  });
}

cudaError_t lensbox_cuda_padded_nms(const NmsProblem& problem, void* workspace, cudaStream_t stream) {
  if (problem.batch == 0) return cudaSuccess;
  if (!must_sort(problem)) return launch_nms(problem, {nullptr, 0, problem.batch}, stream);
  return with_math_types(problem, [&](auto /*math*/, auto score) {
    return run_sorted<decltype(score)>(problem, workspace, stream);
  });
}

}  // namespace lensbox
