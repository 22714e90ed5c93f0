# Finds libtorch, for the op library and the C++ runtime alike. Defines the target lensbox_torch (headers,
# libtorch_cpu, libc10), LENSBOX_TORCH_ROOT, LENSBOX_TORCH_VERSION and LENSBOX_TORCH_HAS_CUDA (0 or 1).
#
# -DLENSBOX_TORCH_ROOT=<libtorch> says where it is; otherwise CMAKE_PREFIX_PATH does (torch.utils.cmake_prefix_path,
# or the folder of a plain libtorch); otherwise Python is asked. torch's own CMake package is not used: that of a CUDA
# build demands nvcc and a whole CUDA toolkit, in versions that CMake knows, to link libraries that nothing here calls.

if(NOT LENSBOX_TORCH_ROOT)
  foreach(prefix IN LISTS CMAKE_PREFIX_PATH)
    list(APPEND torch_roots ${prefix} ${prefix}/../..)
  endforeach()
  find_path(torch_include torch/headeronly/version.h PATHS ${torch_roots} PATH_SUFFIXES include NO_CACHE)
  if(torch_include)
    file(REAL_PATH ${torch_include}/.. LENSBOX_TORCH_ROOT)
  endif()
endif()
if(NOT LENSBOX_TORCH_ROOT)
  find_package(Python 3.10 COMPONENTS Interpreter)
  if(Python_FOUND)
    execute_process(
      COMMAND ${Python_EXECUTABLE} -c
              "import importlib.util as u; print(u.find_spec('torch').submodule_search_locations[0])"
      OUTPUT_VARIABLE LENSBOX_TORCH_ROOT OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  endif()
endif()

set(version_header ${LENSBOX_TORCH_ROOT}/include/torch/headeronly/version.h)
if(NOT LENSBOX_TORCH_ROOT OR NOT EXISTS ${version_header})
  message(FATAL_ERROR
    "libtorch 2.11 or later was not found. For the Python package, install torch first and build without isolation:\n"
    "  pip install torch scikit-build-core && pip install --no-build-isolation .\n"
    "Elsewhere pass where it is, for example that of a Python installation:\n"
    "  -DCMAKE_PREFIX_PATH=\"$(python -c 'import torch; print(torch.utils.cmake_prefix_path)')\"")
endif()
file(STRINGS ${version_header} version_parts REGEX "define TORCH_VERSION_(MAJOR|MINOR|PATCH) ")
list(TRANSFORM version_parts REPLACE "[^0-9]" "")
list(JOIN version_parts "." LENSBOX_TORCH_VERSION)
if(LENSBOX_TORCH_VERSION VERSION_LESS 2.11)
  message(FATAL_ERROR "libtorch 2.11 or later is needed, found ${LENSBOX_TORCH_VERSION} at ${LENSBOX_TORCH_ROOT}")
endif()

set(LENSBOX_TORCH_HAS_CUDA 0)
if(EXISTS ${LENSBOX_TORCH_ROOT}/lib/libtorch_cuda.so)
  set(LENSBOX_TORCH_HAS_CUDA 1)
endif()

if(NOT TARGET lensbox_torch)
  add_library(lensbox_torch INTERFACE)
  target_include_directories(lensbox_torch SYSTEM INTERFACE  # their warnings are not ours to fix
    ${LENSBOX_TORCH_ROOT}/include ${LENSBOX_TORCH_ROOT}/include/torch/csrc/api/include)
  target_link_libraries(lensbox_torch INTERFACE
    ${LENSBOX_TORCH_ROOT}/lib/libtorch_cpu.so ${LENSBOX_TORCH_ROOT}/lib/libc10.so)
  target_compile_features(lensbox_torch INTERFACE cxx_std_20)
endif()

message(STATUS "lensbox: torch ${LENSBOX_TORCH_VERSION} at ${LENSBOX_TORCH_ROOT}, CUDA: ${LENSBOX_TORCH_HAS_CUDA}")
