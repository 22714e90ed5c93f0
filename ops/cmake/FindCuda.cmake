# Resolves LENSBOX_CUDA to LENSBOX_WITH_CUDA and, where it is on, defines lensbox_torch_cuda.

include(CheckLanguage)
set(LENSBOX_WITH_CUDA OFF)

if(LENSBOX_CUDA STREQUAL "ON" AND NOT LENSBOX_TORCH_HAS_CUDA)
  message(FATAL_ERROR
    "LENSBOX_CUDA=ON needs a torch built with CUDA; ${LENSBOX_TORCH_ROOT} (${LENSBOX_TORCH_VERSION}) is a CPU build.")
endif()
if(NOT LENSBOX_CUDA STREQUAL "OFF" AND LENSBOX_TORCH_HAS_CUDA)
  set(CMAKE_CUDA_ARCHITECTURES ${LENSBOX_CUDA_ARCHITECTURES})
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    enable_language(CUDA)
    find_package(CUDAToolkit REQUIRED)
    set(LENSBOX_WITH_CUDA ON)
    add_library(lensbox_torch_cuda INTERFACE)
    # The runtime is linked statically, so that the library does not ask for one of a certain path or patch level.
    target_link_libraries(lensbox_torch_cuda INTERFACE ${LENSBOX_TORCH_ROOT}/lib/libc10_cuda.so CUDA::cudart_static)
  elseif(LENSBOX_CUDA STREQUAL "ON")
    message(FATAL_ERROR "LENSBOX_CUDA=ON needs nvcc: put it on PATH or set CUDACXX.")
  endif()
endif()

message(STATUS "lensbox: CUDA kernels: ${LENSBOX_WITH_CUDA} (LENSBOX_CUDA=${LENSBOX_CUDA})")
