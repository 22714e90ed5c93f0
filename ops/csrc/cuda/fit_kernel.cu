#include "device.cuh"
#include "fit_tile.cuh"
#include "launch.h"
#include "launchers.h"

namespace lensbox {
namespace {

// Compute an image whose windows are larger than shared memory: reductions by some hundreds and more.
//
// A block computes one output at a time, every `blocks`-th output of the image. The warps of the block share
// the window's pixels along the second axis; the lanes of a warp share the pixels along the first axis.
// Nothing is cached: each thread computes the weights that it uses.
__device__ __forceinline__ void fit_wide(const ImageTask& task, const Canvases& out, uint8_t* canvas,
                                         int32_t block, int32_t blocks, uint8_t* shared) {
  fill_padding(task, out, canvas, block, blocks);
  WideMemory& memory = *reinterpret_cast<WideMemory*>(shared);
  const int32_t lane = static_cast<int32_t>(threadIdx.x % 32), warp = static_cast<int32_t>(threadIdx.x / 32);
  const int64_t plane_bytes = int64_t{out.height} * out.width;
  const int64_t first_step = task.first_is_columns ? 1 : out.width;
  const int64_t second_step = task.first_is_columns ? out.width : 1;
  const int32_t outputs = task.first.output * task.second.output;
  for (int32_t output = block; output < outputs; output += blocks) {
    const int32_t second = output / task.first.output, first = output - second * task.first.output;
    const FilterWindow across =
        filter_window(task.filter, task.first.begin + first, task.first.input, task.first.whole);
    const FilterWindow down =
        filter_window(task.filter, task.second.begin + second, task.second.input, task.second.whole);
    if (threadIdx.x == 0) memory.areas[0] = filter_area(task.filter, across);
    if (threadIdx.x == 32) memory.areas[1] = filter_area(task.filter, down);
    uint8_t* const to =
        canvas + (task.first.offset + first) * first_step + (task.second.offset + second) * second_step;
    for (int32_t plane = 0; plane < task.planes; ++plane) {
      if (threadIdx.x == 0) memory.total = kHalfWeight;
      __syncthreads();
      uint32_t sum = 0;
      for (int32_t row = warp; row < down.count; row += kFitThreads / 32) {
        uint32_t part = 0;
        for (int32_t i = lane; i < across.count; i += 32) {
          part +=
              static_cast<uint32_t>(fixed_weight(filter_height(task.filter, across, i), memory.areas[0])) *
              pixel_at(task, plane, across.first + i, down.first + row);
        }
        for (int distance = 16; distance > 0; distance /= 2) {
          part += __shfl_down_sync(kFullWarp, part, distance);
        }
        sum += static_cast<uint32_t>(fixed_weight(filter_height(task.filter, down, row), memory.areas[1])) *
               filtered_byte(static_cast<int32_t>(kHalfWeight + part));
      }
      if (lane == 0) atomicAdd(&memory.total, sum);
      __syncthreads();
      if (threadIdx.x == 0) {
        const uint8_t byte = filtered_byte(static_cast<int32_t>(memory.total));
        to[out.plane_of(plane) * plane_bytes] = byte;
        for (int32_t copy = 1; task.planes == 1 && copy < out.channels; ++copy)
          to[out.plane_of(copy) * plane_bytes] = byte;
      }
    }
    __syncthreads();
  }
}

// Write a byte of one plane, or of all planes if the image is gray.
__device__ __forceinline__ void store_pixel(const ImageTask& task, const Canvases& out, uint8_t* to,
                                            int32_t plane, uint8_t byte) {
  const int64_t plane_bytes = int64_t{out.height} * out.width;
  const int32_t copies = task.planes == 1 ? out.channels : 1;
  for (int32_t copy = 0; copy < copies; ++copy)
    to[out.plane_of(plane + copy) * plane_bytes] = byte;
}

// Return a pixel by its column and row.
__device__ __forceinline__ int32_t pixel_of(const ImageTask& task, int32_t plane, int32_t column,
                                            int32_t row) {
  const bool columns_first = task.first_is_columns;
  return static_cast<int32_t>(
      pixel_at(task, plane, columns_first ? column : row, columns_first ? row : column));
}

// Fill the block's share of the canvas with the pixels that kNearest takes. The rows of the share are found
// by one thread; each thread walks the columns, and takes every kFitThreads-th.
__device__ __forceinline__ void take_nearest(const ImageTask& task, const Canvases& out, uint8_t* canvas,
                                             int32_t block, int32_t blocks) {
  __shared__ int32_t taken_rows[kRowsOfBlock];
  fill_padding(task, out, canvas, block, blocks);
  const PassAxis across = canvas_axis(task, true), down = canvas_axis(task, false);
  const int32_t begin = down.output * block / blocks, end = down.output * (block + 1) / blocks;
  if (threadIdx.x == 0) {
    NearestPixels walk(down.input, down.whole);
    for (int32_t i = 0; i < down.begin + begin; ++i)
      walk.next();
    for (int32_t row = begin; row < end; ++row)
      taken_rows[row - begin] = walk.next();
  }
  __syncthreads();
  NearestPixels walk(across.input, across.whole);
  int32_t walked = 0;
  for (int32_t column = static_cast<int32_t>(threadIdx.x); column < across.output; column += kFitThreads) {
    for (; walked < across.begin + column; ++walked)
      walk.next();
    const int32_t pixel = walk.next();
    ++walked;
    for (int32_t row = begin; row < end; ++row) {
      uint8_t* const to = canvas + int64_t{down.offset + row} * out.width + across.offset + column;
      for (int32_t plane = 0; plane < task.planes; ++plane) {
        const int32_t byte = pixel_of(task, plane, pixel, taken_rows[row - begin]);
        store_pixel(task, out, to, plane, static_cast<uint8_t>(byte));
      }
    }
  }
}

// Two rows of the image, by their bytes from its begin, and their weights.
struct MixedRows {
  int64_t first, second;
  int32_t first_weight, second_weight;
};

// Fill the block's share of the canvas with OpenCV's INTER_LINEAR. Each thread computes one row's taps; then
// each thread takes every kFitThreads-th column of all rows. Addresses are computed once for a column and
// once for a row: a pixel's loads are sums of both.
__device__ __forceinline__ void mix_linear(const ImageTask& task, const Canvases& out, uint8_t* canvas,
                                           int32_t block, int32_t blocks) {
  __shared__ MixedRows mixed_rows[kRowsOfBlock];
  fill_padding(task, out, canvas, block, blocks);
  const PassAxis across = canvas_axis(task, true), down = canvas_axis(task, false);
  const int32_t begin = down.output * block / blocks, end = down.output * (block + 1) / blocks;
  if (const int32_t row = begin + static_cast<int32_t>(threadIdx.x); row < end) {
    const LinearTaps taps = linear_taps(down.begin + row, down.input, down.whole, /*is_columns=*/false);
    mixed_rows[threadIdx.x] = {taps.first * down.stride, taps.second * down.stride, taps.first_weight,
                               taps.second_weight};
  }
  __syncthreads();
  for (int32_t column = static_cast<int32_t>(threadIdx.x); column < across.output; column += kFitThreads) {
    const LinearTaps taps =
        linear_taps(across.begin + column, across.input, across.whole, /*is_columns=*/true);
    const uint8_t* const left = task.data + taps.first * across.stride;
    const uint8_t* const right = task.data + taps.second * across.stride;
    uint8_t* to = canvas + int64_t{down.offset + begin} * out.width + across.offset + column;
    for (int32_t row = begin; row < end; ++row, to += out.width) {
      const MixedRows rows = mixed_rows[row - begin];
      for (int32_t plane = 0; plane < task.planes; ++plane) {
        const auto mixed = [&](int64_t y) {
          return linear_mix(taps, static_cast<int32_t>(level_at(task, plane, left + y)),
                            static_cast<int32_t>(level_at(task, plane, right + y)));
        };
        store_pixel(
            task, out, to, plane,
            linear_byte(rows.first_weight, rows.second_weight, mixed(rows.first), mixed(rows.second)));
      }
    }
  }
}

// What a kernel is compiled for. kUsual is bilinear, shows images whole, and writes red first: as constants,
// these leave more registers to the loops over pixels.
enum class Kind { kNearest, kOpencvLinear, kUsual, kAny };

Kind kind_of(const Canvases& out) {
  if (out.filter == Filter::kNearest) return Kind::kNearest;
  if (out.filter == Filter::kOpencvLinear) return Kind::kOpencvLinear;
  const bool is_whole = out.mode == FitMode::kLetterbox || out.mode == FitMode::kStretch;
  const bool is_usual = out.filter == Filter::kBilinear && is_whole && !out.is_bgr;
  return is_usual ? Kind::kUsual : Kind::kAny;
}

// The blocks of an image, from first_block on, compute one tile each; the first block also writes the
// geometry.
template <int kCapacity, Kind kKind>
__global__ void __launch_bounds__(kFitThreads, kFitBlocksPerSm)
    fit_kernel(const __grid_constant__ FitBatch<kCapacity> batch) {
  extern __shared__ __align__(16) uint8_t memory[];
  const int32_t at = static_cast<int32_t>(blockIdx.x);
  int32_t image = 0;
  for (int32_t beyond = batch.images; beyond - image > 1;) {
    const int32_t middle = (image + beyond) / 2;
    (batch.tasks[middle].first_block <= at ? image : beyond) = middle;
  }
  Canvases out = batch.out;
  if constexpr (kKind == Kind::kUsual) {
    out.filter = Filter::kBilinear;
    out.mode = FitMode::kLetterbox;
    out.is_bgr = false;
  }
  const ImageTask task = unpacked(batch.tasks[image], out);
  const int32_t blocks =
      (image + 1 < batch.images ? batch.tasks[image + 1].first_block : static_cast<int32_t>(gridDim.x)) -
      task.first_block;
  const int32_t block = at - task.first_block;
  const int64_t index = batch.first_image + image;
  uint8_t* const canvas = out.pixels + index * out.channels * out.height * out.width;
  if (block == 0 && threadIdx.x == 0) write_geometry_of(task, out.geometry + 6 * index);
  if constexpr (kKind == Kind::kNearest) {
    take_nearest(task, out, canvas, block, blocks);
  } else if constexpr (kKind == Kind::kOpencvLinear) {
    mix_linear(task, out, canvas, block, blocks);
  } else if (task.tile > 0) {
    fit_tile(task, out, canvas, block, blocks, memory);
  } else {
    fit_wide(task, out, canvas, block, blocks, memory);
  }
}

template <int kCapacity>
cudaError_t launch(const ImageView* images, int32_t first, int32_t count, const Canvases& out,
                   cudaStream_t stream) {
  FitBatch<kCapacity> batch;
  batch.out = out;
  batch.first_image = first;
  batch.images = count;
  const int32_t per_sm = device_attribute(cudaDevAttrMaxSharedMemoryPerMultiprocessor) / (kFitShared + 1024);
  const int32_t at_once = multiprocessors() * std::clamp(per_sm, 1, kFitBlocksPerSm);
  int32_t shared_bytes = 0;
  ImageTask tasks[kCapacity];
  const int32_t blocks = plan_fit(images + first, count, out, at_once, tasks, &shared_bytes);
  for (int32_t i = 0; i < count; ++i)
    batch.tasks[i] = packed(tasks[i], out);
  const Kind kind = kind_of(out);
  auto* const kernel = kind == Kind::kNearest        ? fit_kernel<kCapacity, Kind::kNearest>
                       : kind == Kind::kOpencvLinear ? fit_kernel<kCapacity, Kind::kOpencvLinear>
                       : kind == Kind::kUsual        ? fit_kernel<kCapacity, Kind::kUsual>
                                                     : fit_kernel<kCapacity, Kind::kAny>;
  kernel<<<blocks, kFitThreads, shared_bytes, stream>>>(batch);
  return cudaGetLastError();
}

// The number of images of one launch: few images with short parameters, or many. Parameters may have 32,764
// bytes with the drivers that CUDA 13 asks for, and 4,096 with earlier ones.
constexpr int kFewImages = 4;
constexpr int kMostImages = CUDART_VERSION >= 13000 ? 128 : 63;
static_assert(sizeof(FitBatch<kMostImages>) <= (CUDART_VERSION >= 13000 ? 32764 : 4096));

constexpr int kLookUpThreads = 256;

// Each thread takes four adjacent pixels of a plane at a time.
template <typename Number>
__global__ void __launch_bounds__(kLookUpThreads)
    look_up_kernel(const __grid_constant__ LevelTable table, const uint8_t* pixels, int64_t planes,
                   int64_t plane_size, Number* out) {
  struct alignas(4 * sizeof(Number)) Four {
    Number numbers[4];
  };
  __shared__ Number levels[3 * 256];
  const Number* const of_levels = reinterpret_cast<const Number*>(&table.float32);
  for (int32_t i = static_cast<int32_t>(threadIdx.x); i < 256 * table.channels; i += kLookUpThreads)
    levels[i] = of_levels[i];
  __syncthreads();
  const int64_t step = int64_t{4} * kLookUpThreads * gridDim.x;
  for (int64_t plane = blockIdx.y; plane < planes; plane += gridDim.y) {
    const Number* const of_channel = levels + 256 * (plane % table.channels);
    const uint8_t* const from = pixels + plane * plane_size;
    Number* const to = out + plane * plane_size;
    for (int64_t i = int64_t{4} * (kLookUpThreads * blockIdx.x + threadIdx.x); i < plane_size; i += step) {
      if (plane_size % 4 == 0) {  // then each four is aligned, as the tensors are
        const uint32_t four = *reinterpret_cast<const uint32_t*>(from + i);
        *reinterpret_cast<Four*>(to + i) = {{of_channel[four & 255], of_channel[four >> 8 & 255],
                                             of_channel[four >> 16 & 255], of_channel[four >> 24]}};
      } else {
        for (int64_t j = i; j < min(i + 4, plane_size); ++j)
          to[j] = of_channel[from[j]];
      }
    }
  }
}

}  // namespace

cudaError_t lensbox_cuda_fit(const ImageView* images, int64_t count, const Canvases& out,
                             cudaStream_t stream) {
  for (int64_t first = 0; first < count; first += kMostImages) {
    const int32_t part = static_cast<int32_t>(std::min<int64_t>(count - first, kMostImages));
    const int32_t begin = static_cast<int32_t>(first);
    const cudaError_t error = part <= kFewImages ? launch<kFewImages>(images, begin, part, out, stream)
                                                 : launch<kMostImages>(images, begin, part, out, stream);
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

cudaError_t lensbox_cuda_look_up(const LevelTable& table, const uint8_t* pixels, int64_t planes,
                                 int64_t plane_size, void* out, cudaStream_t stream) {
  constexpr int64_t kPixelsOfABlock = 4 * 4 * kLookUpThreads;
  const auto across =
      static_cast<unsigned int>(std::min<int64_t>((plane_size - 1) / kPixelsOfABlock + 1, 1 << 16));
  const dim3 blocks(across, static_cast<unsigned int>(std::min<int64_t>(planes, 65535)));
  if (table.is_float32) {
    look_up_kernel<<<blocks, kLookUpThreads, 0, stream>>>(table, pixels, planes, plane_size,
                                                          static_cast<float*>(out));
  } else {
    look_up_kernel<<<blocks, kLookUpThreads, 0, stream>>>(table, pixels, planes, plane_size,
                                                          static_cast<uint16_t*>(out));
  }
  return cudaGetLastError();
}

}  // namespace lensbox
