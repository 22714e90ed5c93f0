# Finds libtorch, for the op library and the C++ runtime alike. Defines the target lensbox_torch (headers,
# libtorch_cpu, libc10), LENSBOX_TORCH_ROOT, LENSBOX_TORCH_VERSION and LENSBOX_TORCH_HAS_CUDA (0 or 1).
#
# -DLENSBOX_TORCH_ROOT=<libtorch> says where it is; otherwise CMAKE_PREFIX_PATH does (torch.utils.cmake_prefix_path,
# or the folder of a plain libtorch); otherwise Python is asked, but not for another machine's torch. torch's own CMake
# package is not used: that of a CUDA build demands nvcc and a whole CUDA toolkit, in versions that CMake knows, to link
# libraries that nothing here calls.

# End here if programs for the machine of a cross build cannot be linked with this torch: it is another machine's, or lacks
# libraries, which would otherwise be noticed at the end of the build, or on the device.
function(lensbox_check_torch_links root)
  set(folder ${CMAKE_CURRENT_BINARY_DIR}/CMakeFiles/lensbox_torch_links)
  file(WRITE ${folder}/main.cpp "int main() {}\n")
  set(options LINKER:--no-as-needed)
  if(EXISTS ${root}/lib/libtorch_cuda.so)
    list(APPEND options LINKER:--allow-shlib-undefined)  # see lensbox_torch below
  endif()
  try_compile(lensbox_torch_links ${folder} SOURCES ${folder}/main.cpp
    LINK_OPTIONS ${options} LINK_LIBRARIES ${root}/lib/libtorch_cpu.so ${root}/lib/libc10.so OUTPUT_VARIABLE said)
  set(links ${lensbox_torch_links})
  unset(lensbox_torch_links CACHE)
  if(NOT links)
    string(REGEX MATCHALL "[^\n]*(, not found|wrong format|cannot find|No such file)[^\n]*" reasons "${said}")
    list(JOIN reasons "\n  " reasons)
    message(FATAL_ERROR
      "The libtorch at ${root} cannot be linked into programs for ${CMAKE_SYSTEM_PROCESSOR}:\n  ${reasons}\n"
      "-DLENSBOX_TORCH_ROOT=<folder> or CMAKE_PREFIX_PATH must name a libtorch for ${CMAKE_SYSTEM_PROCESSOR}. PyPI's "
      "torch for aarch64 is a CUDA build: beside it must lie the pip packages nvidia-cuda-runtime (libcudart.so.13) and "
      "nvidia-cuda-cupti (libcupti.so.13) for the same processor.")
  endif()
endfunction()

# A function, so that its variables are neither read from nor left in the scope of the includer.
function(lensbox_find_torch)
  set(root "${LENSBOX_TORCH_ROOT}")
  if(NOT root)
    set(folders "")
    foreach(prefix IN LISTS CMAKE_PREFIX_PATH)
      list(APPEND folders ${prefix} ${prefix}/../..)
    endforeach()
    # First as they are, also where a toolchain file has all folders looked for below the root of another system.
    set(header torch/headeronly/version.h)
    find_path(lensbox_torch_include ${header}
      PATHS ${folders} PATH_SUFFIXES include NO_CACHE NO_DEFAULT_PATH NO_CMAKE_FIND_ROOT_PATH)
    find_path(lensbox_torch_include ${header} PATHS ${folders} PATH_SUFFIXES include NO_CACHE)
    if(lensbox_torch_include)
      file(REAL_PATH ${lensbox_torch_include}/.. root)
    endif()
  endif()
  if(NOT root AND NOT CMAKE_CROSSCOMPILING)
    find_package(Python 3.10 COMPONENTS Interpreter)
    if(Python_FOUND)
      execute_process(
        COMMAND ${Python_EXECUTABLE} -c
                "import importlib.util as u; print(u.find_spec('torch').submodule_search_locations[0])"
        OUTPUT_VARIABLE root OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    endif()
  endif()
  set(header ${root}/include/torch/headeronly/version.h)
  if(CMAKE_CROSSCOMPILING AND NOT EXISTS "${header}")
    message(FATAL_ERROR
      "libtorch 2.11 or later for ${CMAKE_SYSTEM_PROCESSOR} was not found, got LENSBOX_TORCH_ROOT=\"${root}\". "
      "This machine's torch is not asked for. Unpack one and pass its folder, which holds include/ and lib/:\n"
      "  pip install --target FOLDER --no-deps --only-binary=:all: --platform manylinux_2_28_aarch64 torch\n"
      "  -DLENSBOX_TORCH_ROOT=FOLDER/torch")
  endif()
  if(NOT root OR NOT EXISTS ${header})
    message(FATAL_ERROR
      "libtorch 2.11 or later was not found. For the Python package, install torch first and build without isolation:\n"
      "  pip install torch scikit-build-core && pip install --no-build-isolation .\n"
      "Elsewhere pass where it is, for example that of a Python installation:\n"
      "  -DCMAKE_PREFIX_PATH=\"$(python -c 'import torch; print(torch.utils.cmake_prefix_path)')\"")
  endif()
  file(STRINGS ${header} parts REGEX "define TORCH_VERSION_(MAJOR|MINOR|PATCH) ")
  list(TRANSFORM parts REPLACE "[^0-9]" "")
  list(JOIN parts "." version)
  if(version VERSION_LESS 2.11)
    message(FATAL_ERROR "libtorch 2.11 or later is needed, found ${version} at ${root}")
  endif()
  if(CMAKE_CROSSCOMPILING)
    lensbox_check_torch_links(${root})
  endif()
  set(has_cuda 0)
  if(EXISTS ${root}/lib/libtorch_cuda.so)
    set(has_cuda 1)
  endif()
  set(LENSBOX_TORCH_ROOT ${root} PARENT_SCOPE)
  set(LENSBOX_TORCH_VERSION ${version} PARENT_SCOPE)
  set(LENSBOX_TORCH_HAS_CUDA ${has_cuda} PARENT_SCOPE)
endfunction()

# Headers, whose warnings are not ours to fix, and libraries of the torch that was found.
function(lensbox_link_torch target scope)
  target_include_directories(${target} SYSTEM ${scope}
    ${LENSBOX_TORCH_ROOT}/include ${LENSBOX_TORCH_ROOT}/include/torch/csrc/api/include)
  target_link_libraries(${target} ${scope}
    ${LENSBOX_TORCH_ROOT}/lib/libtorch_cpu.so ${LENSBOX_TORCH_ROOT}/lib/libc10.so)
  target_compile_features(${target} ${scope} cxx_std_20)
endfunction()

set(LENSBOX_TORCH_ROOT "" CACHE PATH "Folder of libtorch, with include/ and lib/")  # absolute, if it was given
set(LENSBOX_TORCH_ROOTS ${LENSBOX_TORCH_ROOT})
list(LENGTH LENSBOX_TORCH_ROOTS count)
if(count GREATER 1)
  list(GET LENSBOX_TORCH_ROOTS -1 LENSBOX_TORCH_ROOT)
endif()
lensbox_find_torch()
if(NOT LENSBOX_TORCH_ROOTS)
  set(LENSBOX_TORCH_ROOTS ${LENSBOX_TORCH_ROOT})
endif()
if(NOT TARGET lensbox_torch)
  add_library(lensbox_torch INTERFACE)
  lensbox_link_torch(lensbox_torch INTERFACE)
  if(LENSBOX_TORCH_HAS_CUDA)
    # CUDA is available in a process in which libtorch_cuda is loaded. No symbol of it need be used here, so the linker
    # would drop it where --as-needed is its default.
    target_link_libraries(lensbox_torch INTERFACE
      "-Wl,--push-state,--no-as-needed,${LENSBOX_TORCH_ROOT}/lib/libtorch_cuda.so,--pop-state")
    # libtorch_cuda needs libraries (cuDNN, NCCL, ...) in packages where the linker does not look.
    target_link_options(lensbox_torch INTERFACE LINKER:--allow-shlib-undefined)
  endif()
endif()

message(STATUS "lensbox: torch ${LENSBOX_TORCH_VERSION} at ${LENSBOX_TORCH_ROOT}, CUDA: ${LENSBOX_TORCH_HAS_CUDA}")
