# Compiles every CUDA source, bindings too, on a machine whose torch has no CUDA (CI). A CPU build of torch ships
# c10/cuda's headers and lacks only one generated file, for which an empty stand-in is written here.

enable_language(CUDA)
find_package(CUDAToolkit REQUIRED)

file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/stand_in/c10/cuda/impl/cuda_cmake_macros.h "#pragma once\n")
add_library(lensbox_cuda_check OBJECT ${BINDINGS} ${CUDA_KERNELS})
target_compile_definitions(lensbox_cuda_check PRIVATE
  LENSBOX_WITH_CUDA LENSBOX_BUILD_RECORD="")
target_include_directories(lensbox_cuda_check PRIVATE csrc)
target_include_directories(lensbox_cuda_check SYSTEM PRIVATE ${CMAKE_CURRENT_BINARY_DIR}/stand_in)
target_link_libraries(lensbox_cuda_check PRIVATE
  lensbox_torch lensbox_compile_options lensbox_cuda_options CUDA::cudart_static)
