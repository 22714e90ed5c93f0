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
