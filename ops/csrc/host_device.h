// The macro that marks arithmetic shared by the CPU and CUDA kernels.
#pragma once

#ifdef __CUDACC__
#define LENSBOX_HOST_DEVICE __host__ __device__ __forceinline__
#else
#define LENSBOX_HOST_DEVICE [[gnu::always_inline]] inline
#endif
