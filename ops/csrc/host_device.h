// Marks arithmetic that the CPU and CUDA kernels share.
#pragma once

#ifdef __CUDACC__
#define LENSBOX_HOST_DEVICE __host__ __device__ __forceinline__
#else
#define LENSBOX_HOST_DEVICE [[gnu::always_inline]] inline
#endif
