#include "launch.h"
#include "memory.cuh"
#include "pairwise_giou_kernel.h"

namespace lensbox {
namespace {

constexpr int kThreads = 128;
constexpr int kRows = 16;  // rows of the matrix in a block's tile
constexpr int kBlocksPerSm = 16;

// A block computes a tile of kRows x kThreads: each thread keeps one box of boxes2 in registers and goes down
// the rows, whose boxes all threads read from shared memory (a broadcast). Stores of a row are adjacent.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    pairwise_giou_kernel(const __grid_constant__ PairwiseProblem problem, T eps,
                         const __grid_constant__ SlotView out) {
  __shared__ Box<T> rows[kRows];
  const int64_t row_tiles = (problem.rows + kRows - 1) / kRows;
  const int64_t column_tiles = (problem.columns + kThreads - 1) / kThreads;
  const int64_t tiles = problem.batch * row_tiles * column_tiles;
  for (int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const int64_t column = tile % column_tiles * kThreads + threadIdx.x;
    const int64_t first_row = tile / column_tiles % row_tiles * kRows;
    const int64_t image = tile / column_tiles / row_tiles;
    const int count = static_cast<int>(min(static_cast<int64_t>(kRows), problem.rows - first_row));
    __syncthreads();  // rows may still be read for the tile before
    if (threadIdx.x < count) {
      rows[threadIdx.x] = load_box<T>(problem.boxes1, image * problem.rows + first_row + threadIdx.x);
    }
    __syncthreads();
    if (column >= problem.columns) continue;
    const Box<T> box = load_box<T>(problem.boxes2, image * problem.columns + column);
    int64_t slot = (image * problem.rows + first_row) * problem.columns + column;
    for (int row = 0; row < count; ++row, slot += problem.columns) {
      store_number(out, slot, giou(rows[row], box, eps));
    }
  }
}

// A warp owns one box of one side and adds up its gradients over the whole other side: 32 pairs at a time,
// then a reduction in the warp. No atomics, so sums are repeatable.
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
          load_box<T>(kOfRows ? problem.boxes2 : problem.boxes1, image * other_count + other);
      const int64_t row = kOfRows ? own : other;
      const int64_t column = kOfRows ? other : own;
      const T upstream = load_number<T>(grad, (image * problem.rows + row) * problem.columns + column);
      const Box<T> gradient = scaled(giou_gradient(box, against, eps), upstream);
      sum = {sum.x1 + gradient.x1, sum.y1 + gradient.y1, sum.x2 + gradient.x2, sum.y2 + gradient.y2};
    }
    for (int distance = 16; distance > 0; distance /= 2) {
      sum.x1 += __shfl_down_sync(0xffffffffu, sum.x1, distance);
      sum.y1 += __shfl_down_sync(0xffffffffu, sum.y1, distance);
      sum.x2 += __shfl_down_sync(0xffffffffu, sum.x2, distance);
      sum.y2 += __shfl_down_sync(0xffffffffu, sum.y2, distance);
    }
    if (lane == 0) store_gradient(out, slot, sum);
  }
}

template <typename T>
void forward(const PairwiseProblem& problem, double eps, const SlotView& out, cudaStream_t stream) {
  const int64_t tiles =
      problem.batch * ((problem.rows + kRows - 1) / kRows) * ((problem.columns + kThreads - 1) / kThreads);
  pairwise_giou_kernel<T>
      <<<grid_size(tiles, 1, kBlocksPerSm), kThreads, 0, stream>>>(problem, static_cast<T>(eps), out);
}

template <typename T>
void backward(const SlotView& grad, const PairwiseProblem& problem, double eps, const SlotView& grad1,
              const SlotView& grad2, cudaStream_t stream) {
  const T clamp = static_cast<T>(eps);
  if (problem.rows > 0) {
    const int blocks = grid_size(problem.batch * problem.rows, kThreads / 32, kBlocksPerSm);
    pairwise_giou_backward_kernel<T, true><<<blocks, kThreads, 0, stream>>>(grad, problem, clamp, grad1);
  }
  if (problem.columns > 0) {
    const int blocks = grid_size(problem.batch * problem.columns, kThreads / 32, kBlocksPerSm);
    pairwise_giou_backward_kernel<T, false><<<blocks, kThreads, 0, stream>>>(grad, problem, clamp, grad2);
  }
}

}  // namespace

cudaError_t launch_pairwise_giou(const PairwiseProblem& problem, double eps, bool in_double,
                                 const SlotView& out, cudaStream_t stream) {
  if (problem.batch * problem.rows * problem.columns == 0) return cudaSuccess;
  (in_double ? forward<double> : forward<float>)(problem, eps, out, stream);
  return cudaGetLastError();
}

cudaError_t launch_pairwise_giou_backward(const SlotView& grad, const PairwiseProblem& problem, double eps,
                                          bool in_double, const SlotView& grad1, const SlotView& grad2,
                                          cudaStream_t stream) {
  if (problem.batch == 0) return cudaSuccess;
  (in_double ? backward<double> : backward<float>)(grad, problem, eps, grad1, grad2, stream);
  return cudaGetLastError();
}

}  // namespace lensbox
