// Device code that the kernels of all ops share: programmatic dependent launch (a kernel starts before its
// predecessor has ended), the arrival counter that finds the last block, clusters, and the mask of a warp.
#pragma once

#include <cooperative_groups.h>

namespace lensbox {

// Let the next launch be set up. Its blocks take room on the device from then on.
__device__ __forceinline__ void let_next_begin() {
#if __CUDA_ARCH__ >= 900
  cudaTriggerProgrammaticLaunchCompletion();
#endif
}

// Wait until the writes of all earlier launches can be read. A kernel that starts early (launch.h) calls this
// first.
__device__ __forceinline__ void wait_for_earlier() {
#if __CUDA_ARCH__ >= 900
  cudaGridDependencySynchronize();
#endif
}

// Begin a kernel that starts early and needs no room for blocks of its own any more.
__device__ __forceinline__ void begin_early() {
  let_next_begin();
  wait_for_earlier();
}

// Return true in the last of `blocks` calls; one thread of each block calls this. Everything that a block
// wrote before a barrier and this call is then visible to the last block if it reads past its L1 cache
// (__ldcg). The counter wraps to 0, its value before the launch.
__device__ __forceinline__ bool arrives_last(unsigned int* counter, unsigned int blocks) {
  unsigned int taken;
  // An ordered atomic is cheaper than an unordered one between fences.
  asm volatile("atom.acq_rel.gpu.inc.u32 %0, [%1], %2;"
               : "=r"(taken)
               : "l"(counter), "r"(blocks - 1)
               : "memory");
  return taken == blocks - 1;
}

// The cluster of the calling block: blocks that reach each other's shared memory. Without clusters (launch.h)
// each block is one of its own.
struct Cluster {
  unsigned int rank = 0, blocks = 1;

  __device__ Cluster() {
#if __CUDA_ARCH__ >= 900
    rank = cooperative_groups::this_cluster().block_rank();
    blocks = cooperative_groups::this_cluster().num_blocks();
#endif
  }

  // A barrier of all threads of the cluster, for shared and for global memory.
  __device__ void sync() const {
#if __CUDA_ARCH__ >= 900
    if (blocks > 1) return cooperative_groups::this_cluster().sync();
#endif
    __syncthreads();
  }

  // Return where the variable of the calling block lies in another block.
  template <typename T>
  __device__ T* at(T* variable, unsigned int block) const {
#if __CUDA_ARCH__ >= 900
    if (blocks > 1) return cooperative_groups::this_cluster().map_shared_rank(variable, block);
#endif
    return variable;
  }
};

// The mask of a warp's intrinsics if all 32 lanes take part.
constexpr unsigned int kFullWarp = 0xffffffffu;

}  // namespace lensbox
