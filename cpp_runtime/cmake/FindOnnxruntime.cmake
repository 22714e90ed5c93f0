# Sets LENSBOX_WITH_ONNX: whether ONNX files can be loaded, for which onnxruntime's headers and library are looked for.
# -DLENSBOX_ONNX=ON ends here where one is missing, =OFF builds without, AUTO is the default. ONNXRUNTIME_ROOT, a variable
# of CMake or the environment, says where to look first: an unpacked archive of onnxruntime's own, or any folder with
# include/ and lib/. The library may also be that of the package onnxruntime from pip, if it lies beside torch's.
#
# Nothing is linked: the library is opened when the first ONNX file is loaded, and may be newer than the headers. (Not
# find_package: the pip package has no CMake files, and the CMake files of Debian require packages that are not installed.)
set(LENSBOX_ONNX AUTO CACHE STRING "Load ONNX files (needs onnxruntime): AUTO, ON or OFF")
set(LENSBOX_WITH_ONNX OFF)
if(NOT LENSBOX_ONNX STREQUAL "OFF")
  set(folders ${ONNXRUNTIME_ROOT} $ENV{ONNXRUNTIME_ROOT})
  find_path(LENSBOX_ONNXRUNTIME_INCLUDE_DIR onnxruntime_cxx_api.h
    HINTS ${folders}
    PATH_SUFFIXES include include/onnxruntime include/onnxruntime/core/session onnxruntime onnxruntime/core/session
    DOC "Folder that holds onnxruntime_cxx_api.h")
  file(GLOB pip_libraries ${LENSBOX_TORCH_ROOT}/../onnxruntime/capi/libonnxruntime.so.*)
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
message(STATUS "lensbox: ONNX files: ${LENSBOX_WITH_ONNX} (LENSBOX_ONNX=${LENSBOX_ONNX})")
