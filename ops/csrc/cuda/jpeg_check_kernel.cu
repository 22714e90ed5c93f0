// Walks the codes of many JPEG files at once: a block of threads for each, by the method of jpeg_walk.h.

#include "../jpeg_walk.h"
#include "launchers.h"

namespace lensbox {
namespace {

constexpr int32_t kThreads = 256;  // a part of the file for each

__global__ void __launch_bounds__(kThreads, 4)
    check_jpeg(const uint8_t* files, const int64_t* begins, const JpegScan* scans, bool* is_sound) {
  __shared__ Step quick[4 * kQuickSteps];
  __shared__ JpegScan scan;
  __shared__ JpegPart parts[kThreads];
  const auto* const words = reinterpret_cast<const uint32_t*>(scans + blockIdx.x);
  for (uint32_t i = threadIdx.x; i < sizeof(JpegScan) / 4; i += kThreads)
    reinterpret_cast<uint32_t*>(&scan)[i] = words[i];
  __syncthreads();
  const auto thread = static_cast<int32_t>(threadIdx.x);
  for (int32_t i = thread; i < 4 * kQuickSteps; i += kThreads)
    quick[i] = quick_step(scan.tables[i / (2 * kQuickSteps)][i / kQuickSteps % 2], i % kQuickSteps);
  const uint8_t* const file = files + begins[blockIdx.x];
  const int32_t limit = first_byte(scan, thread + 1, kThreads);
  uint32_t begin = guessed_begin(file, first_byte(scan, thread, kThreads), thread);
  bool is_changed = true;
  while (__syncthreads_or(is_changed)) {  // also waits until all threads have read the ends of this round
    if (is_changed) walk_part(scan, quick, file, begin, limit, parts[thread]);
    __syncthreads();
    const uint32_t found = thread == 0 ? begin : parts[thread - 1].end;
    is_changed = found != begin;
    begin = found;
  }
  if (thread == 0) is_sound[blockIdx.x] = is_sound_whole(scan, parts, kThreads);
}

}  // namespace

cudaError_t lensbox_cuda_check_jpegs(const uint8_t* files, const int64_t* begins, const JpegScan* scans,
                                     int64_t count, bool* is_sound, cudaStream_t stream) {
  static_assert(sizeof(JpegScan) % 4 == 0);
  check_jpeg<<<static_cast<unsigned>(count), kThreads, 0, stream>>>(files, begins, scans, is_sound);
  return cudaGetLastError();
}

}  // namespace lensbox
