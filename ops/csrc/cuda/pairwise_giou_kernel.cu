// GIoU of all pairs of two sides, and its gradient.
//
// A large matrix is computed in tiles, which read each box once and compute its area once. The time of a
// small matrix is the time of a single thread from its loads to its store. So each thread computes one pair,
// and no thread waits for another. Both ways give the same bits.

#include "device.cuh"
#include "launch.h"
#include "launchers.h"
#include "memory.cuh"

namespace lensbox {
namespace {

constexpr int kThreads = 128;
constexpr int kBlocksPerSm = 16;

// The forward's tile: at most kMaxRows rows, fewer where the matrix is small, of kColumns columns a thread.
constexpr int kColumns = 2;
constexpr int kTileColumns = kColumns * kThreads;
constexpr int kMaxRows = 32;
constexpr int kMinRows = 4;
constexpr int64_t kMaxGridSide = 65535;

// A small matrix has blocks of a warp by kSmallRows, and at most this number of pairs a multiprocessor, half
// of what a multiprocessor holds at once.
constexpr int kSmallRows = 4;
constexpr int64_t kSmallPairsPerSm = 1024;

// Packed float32 boxes, the most common case. Without a switch over dtypes, loads do not wait for each other.
struct PackedFloats {
  const PackedBox<float>* boxes;

  explicit PackedFloats(const SlotView& view) : boxes(static_cast<const PackedBox<float>*>(view.data)) {}
  template <typename T>
  __device__ Box<T> load(int64_t slot) const {
    return to_math<T>(boxes[slot]);
  }
};

// Boxes of any dtype and strides.
struct AnyBoxes {
  SlotView view;

  explicit AnyBoxes(const SlotView& boxes) : view(boxes) {}
  template <typename T>
  __device__ Box<T> load(int64_t slot) const {
    return load_box<T>(view, slot);
  }
};

// Float32, the most common dtype, needs no switch.
template <typename T>
__device__ __forceinline__ Box<T> load_matrix_box(const SlotView& view, int64_t slot) {
  if (view.packed && view.dtype == DType::kFloat32) {
    return to_math<T>(static_cast<const PackedBox<float>*>(view.data)[slot]);
  }
  return load_box<T>(view, slot);
}

// A box with the values that all its pairs use.
template <typename T>
struct MeasuredBox {
  Box<T> box;
  T area;
};

// A block computes a tile: each thread keeps kColumns boxes of boxes2 in registers, kThreads apart, and goes
// down the rows, whose boxes all threads read from shared memory (a broadcast). Stores of a row are adjacent.
// blockIdx.x: tile of columns, y: of rows, z: image.
template <typename T, typename Out>
__global__ void __launch_bounds__(kThreads)
    tiled_pairwise_giou_kernel(const __grid_constant__ PairwiseProblem problem, int tile_rows, T eps,
                               Out* out) {
  __shared__ MeasuredBox<T> rows[kMaxRows];
  begin_early();
  const int64_t first_column = int64_t{blockIdx.x} * kTileColumns + threadIdx.x;
  const int64_t row_tiles = (problem.rows + tile_rows - 1) / tile_rows;
  for (int64_t image = blockIdx.z; image < problem.batch; image += gridDim.z) {
    bool far = false;
    MeasuredBox<T> columns[kColumns];
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      const int64_t column = first_column + c * kThreads;
      columns[c] = {};
      if (column < problem.columns) {
        columns[c].box = load_matrix_box<T>(problem.boxes2, image * problem.columns + column);
      }
      columns[c].area = box_extent(columns[c].box).area();
      far = far || is_far(columns[c].box);
    }
    for (int64_t tile = blockIdx.y; tile < row_tiles; tile += gridDim.y) {
      const int64_t first_row = tile * tile_rows;
      const int count = static_cast<int>(min(int64_t{tile_rows}, problem.rows - first_row));
      __syncthreads();  // rows may still be read for the tile before
      if (threadIdx.x < count) {
        const Box<T> box = load_matrix_box<T>(problem.boxes1, image * problem.rows + first_row + threadIdx.x);
        rows[threadIdx.x] = {box, box_extent(box).area()};
        far = far || is_far(box);
      }
      const bool in_range = !__syncthreads_or(far);
      Out* of_row = out + (image * problem.rows + first_row) * problem.columns + first_column;
#pragma unroll 4
      for (int row = 0; row < count; ++row, of_row += problem.columns) {
        const MeasuredBox<T> own = rows[row];
#pragma unroll
        for (int c = 0; c < kColumns; ++c) {
          const T value = in_range ? giou_in_range(own.box, own.area, columns[c].box, columns[c].area, eps)
                                   : giou(own.box, columns[c].box, eps);
          if (first_column + c * kThreads < problem.columns) {
            of_row[c * kThreads] = from_math<Out>(value);
          }
        }
      }
    }
  }
}

// A thread computes one pair. threadIdx.x and blockIdx.x: columns, y: rows, z: images.
template <typename T, typename Out, typename Boxes>
__global__ void __launch_bounds__(32 * kSmallRows)
    small_pairwise_giou_kernel(const __grid_constant__ Boxes boxes1, const __grid_constant__ Boxes boxes2,
                               int rows, int columns, T eps, Out* out) {
  begin_early();
  const int column = blockIdx.x * 32 + threadIdx.x;
  const int row = blockIdx.y * kSmallRows + threadIdx.y;
  if (column >= columns || row >= rows) return;
  // This kernel takes small matrices only, so no int index overflows.
  const int image_row = blockIdx.z * rows + row;
  const Box<T> a = boxes1.template load<T>(image_row);
  const Box<T> b = boxes2.template load<T>(blockIdx.z * columns + column);
  out[image_row * columns + column] = from_math<Out>(giou(a, b, eps));
}

// A warp owns one box of one side and adds up the box's gradients over the whole other side: 32 pairs at a
// time, then a reduction in the warp. There are no atomics, so sums are repeatable.
template <typename T, bool kOfRows>
__global__ void __launch_bounds__(kThreads)
    pairwise_giou_backward_kernel(const __grid_constant__ SlotView grad,
                                  const __grid_constant__ PairwiseProblem problem, T eps,
                                  const __grid_constant__ SlotView out) {
  const int64_t own_count = kOfRows ? problem.rows : problem.columns;
  const int64_t other_count = kOfRows ? problem.columns : problem.rows;
  const int lane = threadIdx.x % 32;
  const int64_t step = int64_t{gridDim.x} * (kThreads / 32);
  for (int64_t slot = int64_t{blockIdx.x} * (kThreads / 32) + threadIdx.x / 32;
       slot < problem.batch * own_count; slot += step) {
    const int64_t image = slot / own_count;
    const int64_t own = slot - image * own_count;
    const Box<T> box = load_box<T>(kOfRows ? problem.boxes1 : problem.boxes2, slot);
    Box<T> sum = {0, 0, 0, 0};
    for (int64_t other = lane; other < other_count; other += 32) {
      const Box<T> against =
          load_matrix_box<T>(kOfRows ? problem.boxes2 : problem.boxes1, image * other_count + other);
      const int64_t row = kOfRows ? own : other;
      const int64_t column = kOfRows ? other : own;
      const T upstream = load_number<T>(grad, (image * problem.rows + row) * problem.columns + column);
      const Box<T> gradient = scaled(giou_gradient(box, against, eps), upstream);
      sum = {sum.x1 + gradient.x1, sum.y1 + gradient.y1, sum.x2 + gradient.x2, sum.y2 + gradient.y2};
    }
    for (int distance = 16; distance > 0; distance /= 2) {
      sum.x1 += __shfl_down_sync(kFullWarp, sum.x1, distance);
      sum.y1 += __shfl_down_sync(kFullWarp, sum.y1, distance);
      sum.x2 += __shfl_down_sync(kFullWarp, sum.x2, distance);
      sum.y2 += __shfl_down_sync(kFullWarp, sum.y2, distance);
    }
    if (lane == 0) store_box(out, slot, sum);
  }
}

// Return the largest number of rows per tile that leaves every multiprocessor a few blocks.
int rows_of_tile(const PairwiseProblem& problem, int64_t column_tiles) {
  const int64_t wanted = 3 * int64_t{multiprocessors()};
  int rows = kMaxRows;
  while (rows > kMinRows && problem.batch * column_tiles * ((problem.rows + rows - 1) / rows) < wanted) {
    rows /= 2;
  }
  return rows;
}

// Callers pass matrices without empty sides.
bool is_small(const PairwiseProblem& problem) {
  return problem.batch * problem.rows * problem.columns <= kSmallPairsPerSm * multiprocessors() &&
         problem.batch <= kMaxGridSide && problem.rows <= kMaxGridSide;
}

template <typename T, typename Out>
void launch_small(const PairwiseProblem& problem, T eps, Out* out, cudaStream_t stream) {
  const auto rows = static_cast<int>(problem.rows), columns = static_cast<int>(problem.columns);
  const LaunchShape shape(dim3((columns + 31) / 32, (rows + kSmallRows - 1) / kSmallRows,
                               static_cast<unsigned int>(problem.batch)),
                          dim3(32, kSmallRows));
  const auto run = [&](auto boxes1, auto boxes2) {
    launch(Start::kProgrammatic, small_pairwise_giou_kernel<T, Out, decltype(boxes1)>, shape, stream, boxes1,
           boxes2, rows, columns, eps, out);
  };
  const auto are_packed_floats = [](const SlotView& boxes) {
    return boxes.packed && boxes.dtype == DType::kFloat32;
  };
  if constexpr (std::is_same_v<Out, float>) {
    if (are_packed_floats(problem.boxes1) && are_packed_floats(problem.boxes2)) {
      return run(PackedFloats(problem.boxes1), PackedFloats(problem.boxes2));
    }
  }
  run(AnyBoxes(problem.boxes1), AnyBoxes(problem.boxes2));
}

template <typename T, typename Out>
void launch_tiles(const PairwiseProblem& problem, T eps, Out* out, cudaStream_t stream) {
  const int64_t column_tiles = (problem.columns + kTileColumns - 1) / kTileColumns;
  const int rows = rows_of_tile(problem, column_tiles);
  const dim3 grid(static_cast<unsigned int>(column_tiles),
                  static_cast<unsigned int>(std::min((problem.rows + rows - 1) / rows, kMaxGridSide)),
                  static_cast<unsigned int>(std::min(problem.batch, kMaxGridSide)));
  launch(Start::kProgrammatic, tiled_pairwise_giou_kernel<T, Out>, LaunchShape(grid, kThreads), stream,
         problem, rows, eps, out);
}

template <typename T>
void forward(const PairwiseProblem& problem, double eps, const SlotView& out, cudaStream_t stream) {
  with_storage(out.dtype, [&](auto tag) {
    using Out = typename decltype(tag)::type;
    if constexpr (is_floating<Out> && (std::is_same_v<T, double> == std::is_same_v<Out, double>)) {
      (is_small(problem) ? launch_small<T, Out> : launch_tiles<T, Out>)(problem, static_cast<T>(eps),
                                                                        static_cast<Out*>(out.data), stream);
    }
  });
}

template <typename T>
void backward(const SlotView& grad, const PairwiseProblem& problem, double eps, const SlotView& grad1,
              const SlotView& grad2, cudaStream_t stream) {
  const T clamp = static_cast<T>(eps);
  if (grad1.exists() && problem.rows > 0) {
    const int blocks = grid_size(problem.batch * problem.rows, kThreads / 32, kBlocksPerSm);
    pairwise_giou_backward_kernel<T, true><<<blocks, kThreads, 0, stream>>>(grad, problem, clamp, grad1);
  }
  if (grad2.exists() && problem.columns > 0) {
    const int blocks = grid_size(problem.batch * problem.columns, kThreads / 32, kBlocksPerSm);
    pairwise_giou_backward_kernel<T, false><<<blocks, kThreads, 0, stream>>>(grad, problem, clamp, grad2);
  }
}

}  // namespace

cudaError_t lensbox_cuda_pairwise_giou(const PairwiseProblem& problem, double eps, bool in_double,
                                       const SlotView& out, cudaStream_t stream) {
  if (problem.batch * problem.rows * problem.columns == 0) return cudaSuccess;
  (in_double ? forward<double> : forward<float>)(problem, eps, out, stream);
  return cudaGetLastError();
}

cudaError_t lensbox_cuda_pairwise_giou_backward(const SlotView& grad, const PairwiseProblem& problem,
                                                double eps, bool in_double, const SlotView& grad1,
                                                const SlotView& grad2, cudaStream_t stream) {
  if (problem.batch == 0) return cudaSuccess;
  (in_double ? backward<double> : backward<float>)(grad, problem, eps, grad1, grad2, stream);
  return cudaGetLastError();
}

}  // namespace lensbox
