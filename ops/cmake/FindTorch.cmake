# Finds libtorch and defines lensbox_torch (headers, libc10, libtorch_cpu), LENSBOX_TORCH_ROOT,
# LENSBOX_TORCH_VERSION and LENSBOX_TORCH_HAS_CUDA.
#
# Not find_package(Torch): that pulls in the whole CUDA toolkit and libraries this one must not link (it has to
# load into any process that already holds torch), and it fails on a CUDA build of torch without a toolkit.
# -DLENSBOX_TORCH_ROOT=<libtorch> points at a plain C++ libtorch; otherwise the build's Python is asked.

if(NOT LENSBOX_TORCH_ROOT)
  find_package(Python 3.10 REQUIRED COMPONENTS Interpreter)
  execute_process(
    COMMAND ${Python_EXECUTABLE} -c
            "import importlib.util as u; print(u.find_spec('torch').submodule_search_locations[0])"
    OUTPUT_VARIABLE torch_root OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
  if(failed)
    message(FATAL_ERROR
      "torch is not installed for ${Python_EXECUTABLE}. Install it first and build without isolation:\n"
      "  pip install torch scikit-build-core && pip install --no-build-isolation .\n"
      "or pass -DLENSBOX_TORCH_ROOT=<path of libtorch>.")
  endif()
  set(LENSBOX_TORCH_ROOT ${torch_root})
endif()

set(version_header ${LENSBOX_TORCH_ROOT}/include/torch/headeronly/version.h)
if(NOT EXISTS ${version_header})
  message(FATAL_ERROR "LENSBOX_TORCH_ROOT holds no libtorch of version 2.11 or later: ${LENSBOX_TORCH_ROOT}")
endif()
file(STRINGS ${version_header} version_parts REGEX "define TORCH_VERSION_(MAJOR|MINOR|PATCH) ")
list(TRANSFORM version_parts REPLACE "[^0-9]" "")
list(JOIN version_parts "." LENSBOX_TORCH_VERSION)
if(LENSBOX_TORCH_VERSION VERSION_LESS 2.11)
  message(FATAL_ERROR "lensbox needs torch 2.11 or later, found ${LENSBOX_TORCH_VERSION} at ${LENSBOX_TORCH_ROOT}")
endif()

find_library(LENSBOX_TORCH_CPU_LIBRARY torch_cpu PATHS ${LENSBOX_TORCH_ROOT}/lib NO_DEFAULT_PATH REQUIRED)
find_library(LENSBOX_C10_LIBRARY c10 PATHS ${LENSBOX_TORCH_ROOT}/lib NO_DEFAULT_PATH REQUIRED)
find_library(LENSBOX_C10_CUDA_LIBRARY c10_cuda PATHS ${LENSBOX_TORCH_ROOT}/lib NO_DEFAULT_PATH)
if(LENSBOX_C10_CUDA_LIBRARY)
  set(LENSBOX_TORCH_HAS_CUDA ON)
else()
  set(LENSBOX_TORCH_HAS_CUDA OFF)
endif()

add_library(lensbox_torch INTERFACE)
# SYSTEM: their warnings are not ours to fix.
target_include_directories(lensbox_torch SYSTEM INTERFACE
  ${LENSBOX_TORCH_ROOT}/include ${LENSBOX_TORCH_ROOT}/include/torch/csrc/api/include)
target_link_libraries(lensbox_torch INTERFACE ${LENSBOX_TORCH_CPU_LIBRARY} ${LENSBOX_C10_LIBRARY})
target_compile_features(lensbox_torch INTERFACE cxx_std_20)

message(STATUS "lensbox: torch ${LENSBOX_TORCH_VERSION} at ${LENSBOX_TORCH_ROOT}, CUDA: ${LENSBOX_TORCH_HAS_CUDA}")
