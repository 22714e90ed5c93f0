# Finds libtorch and defines the target lensbox_torch, LENSBOX_TORCH_ROOT and LENSBOX_TORCH_HAS_CUDA (0 or 1).
#
# -DLENSBOX_TORCH_ROOT=<libtorch> says where it is. Otherwise CMAKE_PREFIX_PATH does, as with find_package(Torch): either
# torch.utils.cmake_prefix_path or the folder of a plain libtorch. torch's own CMake package is not used: that of a CUDA
# build demands nvcc and a whole CUDA toolkit, in versions that CMake knows, to link libraries that nothing here calls.

if(NOT LENSBOX_TORCH_ROOT)
  foreach(prefix IN LISTS CMAKE_PREFIX_PATH)
    list(APPEND torch_roots ${prefix} ${prefix}/../..)
  endforeach()
  find_path(torch_include torch/headeronly/version.h PATHS ${torch_roots} PATH_SUFFIXES include NO_CACHE)
  if(NOT torch_include)
    message(FATAL_ERROR
      "libtorch 2.11 or later was not found. Pass where it is, for example that of a Python installation:\n"
      "  -DCMAKE_PREFIX_PATH=\"$(python -c 'import torch; print(torch.utils.cmake_prefix_path)')\"")
  endif()
  file(REAL_PATH ${torch_include}/.. LENSBOX_TORCH_ROOT)
endif()

file(STRINGS ${LENSBOX_TORCH_ROOT}/include/torch/headeronly/version.h version_parts
  REGEX "define TORCH_VERSION_(MAJOR|MINOR|PATCH) ")
list(TRANSFORM version_parts REPLACE "[^0-9]" "")
list(JOIN version_parts "." torch_version)
if(torch_version VERSION_LESS 2.11)
  message(FATAL_ERROR "libtorch 2.11 or later is needed, found ${torch_version} at ${LENSBOX_TORCH_ROOT}")
endif()

set(libraries ${LENSBOX_TORCH_ROOT}/lib)
add_library(lensbox_torch INTERFACE)
target_include_directories(lensbox_torch SYSTEM INTERFACE  # their warnings are not ours to fix
  ${LENSBOX_TORCH_ROOT}/include ${LENSBOX_TORCH_ROOT}/include/torch/csrc/api/include)
target_link_libraries(lensbox_torch INTERFACE ${libraries}/libtorch_cpu.so ${libraries}/libc10.so)

set(LENSBOX_TORCH_HAS_CUDA 0)
if(EXISTS ${libraries}/libtorch_cuda.so)
  set(LENSBOX_TORCH_HAS_CUDA 1)
  # CUDA is available in a process in which libtorch_cuda is loaded. No symbol of it is used here, so the linker
  # would drop it where --as-needed is its default.
  target_link_libraries(lensbox_torch INTERFACE
    "-Wl,--push-state,--no-as-needed,${libraries}/libtorch_cuda.so,--pop-state")
  # What libtorch_cuda itself needs (cuDNN, NCCL, ...) lies in packages that the linker does not look into.
  target_link_options(lensbox_torch INTERFACE LINKER:--allow-shlib-undefined)
endif()

message(STATUS "lensbox: torch ${torch_version} at ${LENSBOX_TORCH_ROOT}, CUDA: ${LENSBOX_TORCH_HAS_CUDA}")
