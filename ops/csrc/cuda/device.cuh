// Device code that the kernels of all ops share: programmatic dependent launch (a kernel starts before its
// predecessor has ended), tickets that find the last block, and the mask of a warp.
#pragma once

namespace lensbox {

// First thing in a kernel that starts early (launch.h): lets the launch after this one be set up too, then
// waits until all that launches before it wrote can be read.
__device__ __forceinline__ void begin_early() {
#if __CUDA_ARCH__ >= 900
  cudaTriggerProgrammaticLaunchCompletion();
  cudaGridDependencySynchronize();
#endif
}

// Called by one thread of each of `blocks` blocks; true in the last call. What a block wrote before, with a
// barrier in between, is then visible to the block that gets true, past its L1 cache (__ldcg). The counter
// wraps to 0, as it was found.
__device__ __forceinline__ bool take_last_ticket(unsigned int* counter, unsigned int blocks) {
  unsigned int taken;
  // An ordered atomic is cheaper than an unordered one between fences.
  asm volatile("atom.acq_rel.gpu.inc.u32 %0, [%1], %2;"
               : "=r"(taken)
               : "l"(counter), "r"(blocks - 1)
               : "memory");
  return taken == blocks - 1;
}

// The mask of a warp's intrinsics in which all 32 lanes take part.
constexpr unsigned int kFullWarp = 0xffffffffu;

}  // namespace lensbox
