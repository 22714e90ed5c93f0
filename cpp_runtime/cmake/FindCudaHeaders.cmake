# Sets LENSBOX_CUDA_GRAPHS: ON where torch has CUDA and the CUDA runtime's headers, which torch's own headers include, are
# found: in a CUDA toolkit, or in the pip packages of torch if they are complete. (CMake looks for crt/, which the
# other headers include, because pip has crt/ in a separate package.) No compiler or library of CUDA is needed.
# -DLENSBOX_CUDA_INCLUDE_DIR=<the folder that holds cuda_runtime_api.h and crt/> overrides.
set(LENSBOX_CUDA_GRAPHS OFF)
if(LENSBOX_TORCH_HAS_CUDA)
  file(GLOB pip_packages ${LENSBOX_TORCH_ROOT}/../nvidia/cu* ${LENSBOX_TORCH_ROOT}/../nvidia/cuda_runtime)
  file(GLOB toolkits /usr/local/cuda /usr/local/cuda-*)
  find_program(nvcc nvcc NO_CACHE)
  if(nvcc)
    cmake_path(GET nvcc PARENT_PATH nvcc_folder)
  endif()
  find_path(LENSBOX_CUDA_INCLUDE_DIR crt/host_config.h
    HINTS ENV CUDA_HOME ${nvcc_folder}/.. ${pip_packages}
    PATHS ${toolkits}
    PATH_SUFFIXES include
    DOC "Folder that holds cuda_runtime_api.h and crt/")
  if(LENSBOX_CUDA_INCLUDE_DIR)
    set(LENSBOX_CUDA_GRAPHS ON)
  endif()
endif()
message(STATUS "lensbox: CUDA graphs: ${LENSBOX_CUDA_GRAPHS}")
