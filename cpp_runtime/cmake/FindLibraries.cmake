# Finds the libraries of the C++ runtime besides torch and those of the image reader (core/images/sources.cmake): OpenSSL,
# header-only libraries, and those that not every build has: the CUDA runtime's headers and onnxruntime.

# A cross build looks for everything below the root of another system, but for the folders that its caller names.
macro(lensbox_search_outside_the_sysroot)
  if(CMAKE_SYSROOT OR CMAKE_FIND_ROOT_PATH)
    list(APPEND CMAKE_FIND_ROOT_PATH ${ARGN})
  endif()
endmacro()
lensbox_search_outside_the_sysroot(${CMAKE_PREFIX_PATH} ${JPEG_ROOT} ${PNG_ROOT} ${ZLIB_ROOT} ${OPENSSL_ROOT_DIR})

find_package(Threads REQUIRED)
find_package(OpenSSL 1.1.1 COMPONENTS Crypto)
if(NOT OPENSSL_FOUND)
  message(FATAL_ERROR "OpenSSL was not found, with which artifacts are checked. Install it (Debian, Ubuntu: apt-get install "
    "libssl-dev), or pass -DOPENSSL_ROOT_DIR=<the folder that has it in include/ and lib/>.")
endif()

# lensbox_find_header_only(<name> <header> <apt package>)
#
# Makes the imported target lensbox_headers::<name> from the folder that holds <header>. Looks in the
# system's folders and in <prefix>/include of each entry of CMAKE_PREFIX_PATH; -D<name>_INCLUDE_DIR=<folder>
# overrides. (Not find_package: the CMake files of these packages are in no fixed place, and a plain folder of
# headers is enough.)
function(lensbox_find_header_only name header apt_package)
  find_path(${name}_INCLUDE_DIR ${header} DOC "Folder that holds ${header}")
  if(NOT ${name}_INCLUDE_DIR)
    message(FATAL_ERROR
      "${header} was not found. Install it (Debian, Ubuntu: apt-get install ${apt_package}), "
      "or pass -D${name}_INCLUDE_DIR=<the folder that holds ${header}>.")
  endif()
  if(TARGET lensbox_headers::${name})
    return()
  endif()
  add_library(lensbox_headers::${name} INTERFACE IMPORTED GLOBAL)
  target_include_directories(lensbox_headers::${name} INTERFACE "${${name}_INCLUDE_DIR}")
endfunction()

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

# Sets LENSBOX_WITH_ONNX: whether ONNX files can be loaded, for which onnxruntime's headers and library are looked for.
# -DLENSBOX_ONNX=ON ends here where one is missing, =OFF builds without, AUTO is the default. ONNXRUNTIME_ROOT, a variable
# of CMake or the environment, says where to look first: an unpacked archive of onnxruntime's own, or any folder with
# include/ and lib/. The library may also be that of pip's package onnxruntime: in ONNXRUNTIME_ROOT or CMAKE_PREFIX_PATH
# (`pip install --target`), beside torch, or among the packages of Python_EXECUTABLE, but not for another machine.
#
# Nothing is linked: the library is opened when the first ONNX file is loaded, and may be newer than the headers. (Not
# find_package: the pip package has no CMake files, and the CMake files of Debian require packages that are not installed.)
set(LENSBOX_ONNX AUTO CACHE STRING "Load ONNX files (needs onnxruntime): AUTO, ON or OFF")
set(ONNXRUNTIME_ROOT "" CACHE PATH "Folder of onnxruntime: an unpacked archive, or with include/ and lib/")  # absolute, if it was given
set(LENSBOX_WITH_ONNX OFF)
if(NOT LENSBOX_ONNX STREQUAL "OFF")
  set(folders ${ONNXRUNTIME_ROOT} $ENV{ONNXRUNTIME_ROOT})
  set(packages ${folders} ${CMAKE_PREFIX_PATH})
  if(LENSBOX_TORCH)
    list(APPEND packages ${LENSBOX_TORCH_ROOT}/..)
  endif()
  if(Python_EXECUTABLE AND NOT CMAKE_CROSSCOMPILING)
    execute_process(COMMAND ${Python_EXECUTABLE} -c "import sysconfig; print(sysconfig.get_paths()['purelib'])"
      OUTPUT_VARIABLE python_packages OUTPUT_STRIP_TRAILING_WHITESPACE)
    list(APPEND packages ${python_packages})
  endif()
  list(TRANSFORM packages APPEND /onnxruntime)
  lensbox_search_outside_the_sysroot(${folders} ${packages})
  find_path(LENSBOX_ONNXRUNTIME_INCLUDE_DIR onnxruntime_cxx_api.h
    HINTS ${folders}
    PATH_SUFFIXES include include/onnxruntime include/onnxruntime/core/session onnxruntime onnxruntime/core/session
    DOC "Folder that holds onnxruntime_cxx_api.h")
  list(TRANSFORM packages APPEND /capi/libonnxruntime.so.*)
  file(GLOB pip_libraries ${packages})
  cmake_path(CONVERT "${pip_libraries}" TO_CMAKE_PATH_LIST pip_libraries NORMALIZE)
  set(names onnxruntime)
  foreach(library ${pip_libraries})
    cmake_path(GET library FILENAME name)
    cmake_path(GET library PARENT_PATH pip_folder)
    list(APPEND names ${name})
    list(APPEND folders ${pip_folder})
  endforeach()
  find_library(LENSBOX_ONNXRUNTIME_LIBRARY NAMES ${names} HINTS ${folders} PATH_SUFFIXES lib lib64
    DOC "The library of onnxruntime, libonnxruntime.so")
  if(LENSBOX_ONNXRUNTIME_INCLUDE_DIR AND LENSBOX_ONNXRUNTIME_LIBRARY)
    set(LENSBOX_WITH_ONNX ON)
  elseif(LENSBOX_ONNX STREQUAL "ON")
    message(FATAL_ERROR
      "onnxruntime was not found: its headers: ${LENSBOX_ONNXRUNTIME_INCLUDE_DIR}, its library: "
      "${LENSBOX_ONNXRUNTIME_LIBRARY}. Unpack an archive of its releases and pass -DONNXRUNTIME_ROOT=<that folder>, "
      "install it (Debian 13: apt-get install libonnxruntime-dev), or build without: -DLENSBOX_ONNX=OFF.")
  endif()
endif()
if(NOT LENSBOX_WITH_ONNX AND NOT LENSBOX_TORCH)
  message(FATAL_ERROR "onnxruntime was not found, and with LENSBOX_TORCH=OFF and without it no file can be loaded: pass "
    "-DONNXRUNTIME_ROOT=<an unpacked archive of its releases>.")
endif()
message(STATUS "lensbox: ONNX files: ${LENSBOX_WITH_ONNX} (LENSBOX_ONNX=${LENSBOX_ONNX})")
