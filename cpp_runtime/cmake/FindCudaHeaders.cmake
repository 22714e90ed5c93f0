# Sets LENSBOX_CUDA_GRAPHS: ON where torch has CUDA and the CUDA runtime's headers, which torch's own headers include, are
# found: those of torch's packages from pip, or of a CUDA toolkit. No compiler and no library of CUDA is needed.
# -DLENSBOX_CUDA_INCLUDE_DIR=<the folder that holds cuda_runtime_api.h> overrides.
set(LENSBOX_CUDA_GRAPHS OFF)
if(LENSBOX_TORCH_HAS_CUDA)
  file(GLOB pip_packages ${LENSBOX_TORCH_ROOT}/../nvidia/cu* ${LENSBOX_TORCH_ROOT}/../nvidia/cuda_runtime)
  file(GLOB toolkits /usr/local/cuda /usr/local/cuda-*)
  find_path(LENSBOX_CUDA_INCLUDE_DIR cuda_runtime_api.h
    HINTS ${pip_packages} ENV CUDA_HOME
    PATHS ${toolkits}
    PATH_SUFFIXES include
    DOC "Folder that holds cuda_runtime_api.h")
  if(LENSBOX_CUDA_INCLUDE_DIR)
    set(LENSBOX_CUDA_GRAPHS ON)
  endif()
endif()
message(STATUS "lensbox: CUDA graphs: ${LENSBOX_CUDA_GRAPHS}")
