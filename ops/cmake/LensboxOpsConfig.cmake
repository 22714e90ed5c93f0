# find_package(LensboxOps) defines lensbox::ops: the op library for a program of your own that calls torch::jit::load,
# and the headers and libraries of the torch for which it was built (docs/cpp.md).
#
# The library is the one in LENSBOX_OPS_LIBRARY, or lies where a wheel or an installed C++ runtime has it.
include(${CMAKE_CURRENT_LIST_DIR}/FindTorch.cmake)
set(LENSBOX_OPS_LIBRARY "" CACHE FILEPATH "The op library")  # absolute, if it was given
string(REGEX MATCH "^[0-9]+\\.[0-9]+" lensbox_ops_minor ${LENSBOX_TORCH_VERSION})
foreach(lensbox_ops_file IN ITEMS
    "${LENSBOX_OPS_LIBRARY}"
    ${CMAKE_CURRENT_LIST_DIR}/../torch${lensbox_ops_minor}/liblensbox_ops.so
    ${CMAKE_CURRENT_LIST_DIR}/../liblensbox_ops.so
    ${CMAKE_CURRENT_LIST_DIR}/../../liblensbox_ops.so)
  if(EXISTS "${lensbox_ops_file}" AND NOT TARGET lensbox::ops)
    file(REAL_PATH ${lensbox_ops_file} lensbox_ops_file)
    file(STRINGS ${lensbox_ops_file} lensbox_ops_record REGEX "lensbox-build version=")
    if(NOT lensbox_ops_record MATCHES " torch=${lensbox_ops_minor}\\.")
      set(LensboxOps_FOUND FALSE)
      set(LensboxOps_NOT_FOUND_MESSAGE
        "${lensbox_ops_file} must be built for torch ${LENSBOX_TORCH_VERSION}, got \"${lensbox_ops_record}\"")
      return()
    endif()
    # A program names no symbol of the library, which registers its operators when it is loaded; so the linker would
    # drop it where --as-needed is its default.
    add_library(lensbox::ops SHARED IMPORTED)
    set_target_properties(lensbox::ops PROPERTIES
      IMPORTED_LOCATION ${lensbox_ops_file}
      INTERFACE_LINK_OPTIONS LINKER:--no-as-needed
      INTERFACE_LINK_LIBRARIES lensbox_torch)
  endif()
endforeach()
if(NOT TARGET lensbox::ops)
  set(LensboxOps_FOUND FALSE)
  set(LensboxOps_NOT_FOUND_MESSAGE
    "no liblensbox_ops.so for torch ${LENSBOX_TORCH_VERSION} lies beside this file: name it with -DLENSBOX_OPS_LIBRARY=FILE")
endif()
