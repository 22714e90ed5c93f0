// Programmatic dependent launch (compute capability 9.0 and above): a kernel's blocks are set up while the
// launch before it in the stream still ends. Nothing else of the two overlaps.
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

}  // namespace lensbox
