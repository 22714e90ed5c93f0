// The macro that marks arithmetic shared by the CPU and CUDA kernels.
#pragma once

#ifdef __CUDACC__
#define LENSBOX_HOST_DEVICE __host__ __device__ __forceinline__
#else
#define LENSBOX_HOST_DEVICE [[gnu::always_inline]] inline
#endif

// The C++ runtime has an ImageView and a Box of its own in the namespace lensbox, so there these names have
// their namespace.
namespace lensbox {
namespace kernels {}
#ifndef LENSBOX_RUNTIME
using namespace kernels;
#endif
}  // namespace lensbox
