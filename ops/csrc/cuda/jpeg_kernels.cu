// The two kernels for JPEG files that a GPU decodes: the walk of their codes, which finds damage, and the
// colors of their planes.

#include <cub/block/block_scan.cuh>

#include "../jpeg_color.h"
#include "../jpeg_walk.h"
#include "launchers.h"

namespace lensbox {
namespace {

constexpr int32_t kCheckThreads = 512;
constexpr int32_t kColorThreads = 256;
constexpr int32_t kRowBlocks = 64;
constexpr int32_t kBytes =
    16;  // that a thread copies at a time; kCheckThreads times as many fit into 16 bits

using Sum = cub::BlockScan<int32_t, kCheckThreads>;

// Walk the codes of many files by the method of jpeg_walk.h: a block for each file, a thread for each part of
// it.
__global__ void __launch_bounds__(kCheckThreads, 2)
    check_jpeg(uint8_t* memory, const JpegPlace* places, const JpegScan* scans, bool* is_well_formed) {
  __shared__ Step quick[4 * kSteps];
  __shared__ JpegScan scan;
  __shared__ JpegPath paths[kCheckThreads];
  __shared__ JpegPart parts[kCheckThreads];
  __shared__ Sum::TempStorage sum;
  const auto* const facts = reinterpret_cast<const uint32_t*>(scans + blockIdx.x);
  for (uint32_t i = threadIdx.x; i < sizeof(JpegScan) / 4; i += kCheckThreads)
    reinterpret_cast<uint32_t*>(&scan)[i] = facts[i];
  __syncthreads();
  const auto thread = static_cast<int32_t>(threadIdx.x);
  for (int32_t i = thread; i < 4 * kSteps; i += kCheckThreads)
    quick[i] = quick_step(scan, i);

  const uint8_t* const file = memory + places[blockIdx.x].file;
  auto* const words = reinterpret_cast<uint32_t*>(memory + places[blockIdx.x].workspace);
  uint32_t* const ends = words + jpeg_workspace(scan).words;
  // Tile by tile, kBytes a thread, so that the threads of a warp read and write the same lines of memory.
  JpegCount copied = {};
  for (int32_t tile = scan.begin; tile <= scan.end; tile += kCheckThreads * kBytes) {
    const int32_t from = min(tile + thread * kBytes, scan.end + 1), to = min(from + kBytes, scan.end + 1);
    const JpegCount found = copy_jpeg_data(file, from, to, {}, nullptr, nullptr);
    int32_t before = 0, all = 0;
    Sum(sum).ExclusiveSum(found.bytes | found.ends << 16, before, all);
    copy_jpeg_data(file, from, to, {copied.bytes + (before & 0xFFFF), copied.ends + (before >> 16)}, words,
                   ends);
    copied = {copied.bytes + (all & 0xFFFF), copied.ends + (all >> 16)};
    __syncthreads();
  }

  const JpegData data = {words, ends, scan.segments()};
  const JpegRange range = range_of_part(data, thread, kCheckThreads);
  uint32_t begin = range.begin << 3;
  paths[thread] = JpegPath::unknown();
  bool is_changed = true;
  while (__syncthreads_or(is_changed)) {  // also waits until all threads have read the ends of this round
    if (is_changed) find_path(scan, quick, data, begin, range, paths[thread]);
    __syncthreads();
    const uint32_t found = thread == 0 ? begin : paths[thread - 1].end;
    is_changed = found != begin;
    begin = found;
  }
  check_part(scan, quick, data, begin, range, parts[thread]);
  __syncthreads();
  if (thread == 0) {
    is_well_formed[blockIdx.x] =
        is_well_formed_whole(scan, data, parts, kCheckThreads, paths[kCheckThreads - 1].end);
  }
}

// Upsample chroma and convert YCbCr to RGB, for a batch of decoded files.
//
// Block (i, j) converts the rows j, j + kRowBlocks, ... of image i. Thread t of a block converts the pixels
// t, t + kColorThreads, ... of a row, so a warp reads and writes consecutive bytes. Each thread overwrites
// the luma of its pixel with red; no other thread reads that luma. Neighboring pixels share chroma samples,
// which the cache holds.
__global__ void __launch_bounds__(kColorThreads) convert_jpeg_colors(const JpegColors* images) {
  const JpegColors image = images[blockIdx.x];
  for (auto y = static_cast<int32_t>(blockIdx.y); y < image.height; y += kRowBlocks) {
    for (auto x = static_cast<int32_t>(threadIdx.x); x < image.width; x += kColorThreads)
      jpeg_convert(image, x, y);
  }
}

}  // namespace

cudaError_t lensbox_cuda_check_jpegs(uint8_t* memory, const JpegPlace* places, const JpegScan* scans,
                                     int64_t count, bool* is_well_formed, cudaStream_t stream) {
  static_assert(sizeof(JpegScan) % 4 == 0);
  check_jpeg<<<static_cast<unsigned>(count), kCheckThreads, 0, stream>>>(memory, places, scans,
                                                                         is_well_formed);
  return cudaGetLastError();
}

cudaError_t lensbox_cuda_convert_jpeg_colors(const JpegColors* images, int64_t count, cudaStream_t stream) {
  const dim3 blocks(static_cast<unsigned>(count), kRowBlocks);
  convert_jpeg_colors<<<blocks, kColorThreads, 0, stream>>>(images);
  return cudaGetLastError();
}

}  // namespace lensbox
