# The files that `cmake --install` installs: the shared library, its headers, the CMake package Lensbox, a file for
# pkg-config, and the program. Nothing of it names a folder of this machine.
include(CMakePackageConfigHelpers)
include(GNUInstallDirs)

set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/Lensbox)

# lensbox_set_rpath(<file> <rpath> <component>): of an installed file, in place of the build folder's.
function(lensbox_set_rpath file rpath component)
  string(REPLACE "\$" "\\\$" rpath "${rpath}")
  string(REPLACE ";" ":" rpath "${rpath}")
  set(options "")
  if(NOT component STREQUAL "Unspecified")
    set(options EXCLUDE_FROM_ALL)
  endif()
  install(CODE "file(RPATH_SET FILE \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${file}\" NEW_RPATH \"${rpath}\")"
    COMPONENT ${component} ${options})
endfunction()

set(program ${CMAKE_INSTALL_BINDIR}/lensbox_runner)
set(program_rpath "\$ORIGIN/${library_folder};${LENSBOX_INSTALL_RPATH}")
set(library ${CMAKE_INSTALL_LIBDIR}/$<TARGET_FILE_NAME:lensbox_runtime_shared>)

if(LENSBOX_RUNTIME_PROGRAM)
  install(TARGETS lensbox_runner RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  lensbox_set_rpath(${program} "${program_rpath}" Unspecified)
endif()
install(TARGETS lensbox_runtime_shared EXPORT LensboxTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
lensbox_set_rpath(${library} "${LENSBOX_INSTALL_RPATH}" Unspecified)
install(EXPORT LensboxTargets NAMESPACE lensbox:: DESTINATION ${package_folder})
set(without_torch "")
if(NOT LENSBOX_TORCH)
  set(without_torch PATTERN torch EXCLUDE)
endif()
install(DIRECTORY include/lensbox ${CMAKE_CURRENT_BINARY_DIR}/include/lensbox DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
  ${without_torch})

configure_package_config_file(cmake/LensboxConfig.cmake.in ${CMAKE_CURRENT_BINARY_DIR}/LensboxConfig.cmake
  INSTALL_DESTINATION ${package_folder})
# While the major version is 0, a minor version may change the interface.
set(compatibility SameMajorVersion)
if(PROJECT_VERSION_MAJOR EQUAL 0)
  set(compatibility SameMinorVersion)
endif()
write_basic_package_version_file(${CMAKE_CURRENT_BINARY_DIR}/LensboxConfigVersion.cmake COMPATIBILITY ${compatibility})
install(FILES
  ${CMAKE_CURRENT_BINARY_DIR}/LensboxConfig.cmake ${CMAKE_CURRENT_BINARY_DIR}/LensboxConfigVersion.cmake
  DESTINATION ${package_folder})
cmake_path(RELATIVE_PATH CMAKE_INSTALL_FULL_INCLUDEDIR BASE_DIRECTORY ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig
  OUTPUT_VARIABLE include_folder)
configure_file(cmake/lensbox.pc.in ${CMAKE_CURRENT_BINARY_DIR}/lensbox.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/lensbox.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
if(LENSBOX_TORCH)
  install(FILES ../ops/cmake/FindTorch.cmake DESTINATION ${package_folder})
  install(FILES ../ops/cmake/LensboxOpsConfig.cmake ../ops/cmake/FindTorch.cmake
    DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/LensboxOps)
endif()

# The op library is built by itself (docs/cpp.md). Beside the shared library, whatever uses that finds it.
set(LENSBOX_OPS_LIBRARY "" CACHE FILEPATH "An op library to install beside the shared library")
if(LENSBOX_OPS_LIBRARY)
  if(NOT EXISTS ${LENSBOX_OPS_LIBRARY})
    message(FATAL_ERROR "LENSBOX_OPS_LIBRARY names a file that is not there: ${LENSBOX_OPS_LIBRARY}")
  endif()
  install(FILES ${LENSBOX_OPS_LIBRARY} DESTINATION ${CMAKE_INSTALL_LIBDIR} RENAME liblensbox_ops.so)
endif()

# `cmake --install BUILD --component device`: a folder to copy to a device, with the program, the op library and every
# shared library that they need but those of glibc, which belong to the system. `--component device-library`: the same
# with the shared library in place of the program, for programs of your own. For another machine, they lie where its
# compiler looks.
set(LENSBOX_DEVICE_LIBRARY_DIRS "" CACHE PATH "Further folders that hold shared libraries of the device folder")
set(device_folders ${LENSBOX_DEVICE_LIBRARY_DIRS})
if(LENSBOX_TORCH)
  list(APPEND device_folders ${LENSBOX_TORCH_ROOT}/lib)
endif()
if(CMAKE_CROSSCOMPILING)
  list(APPEND device_folders ${CMAKE_CXX_IMPLICIT_LINK_DIRECTORIES})
endif()
function(lensbox_install_device component target file rpath)
  string(MAKE_C_IDENTIFIER ${component}_libraries libraries)
  install(TARGETS ${target} RUNTIME_DEPENDENCY_SET ${libraries}
    RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT ${component} EXCLUDE_FROM_ALL
    LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT ${component} EXCLUDE_FROM_ALL)
  lensbox_set_rpath(${file} "${rpath}" ${component})
  install(RUNTIME_DEPENDENCY_SET ${libraries}
    DIRECTORIES ${device_folders}
    PRE_EXCLUDE_REGEXES "^ld-linux" "^lib(c|m|dl|rt|pthread|util|resolv)\\.so" "^libcuda\\.so" "^libnvidia-ml\\.so"
    LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT ${component} EXCLUDE_FROM_ALL)
  if(LENSBOX_OPS_LIBRARY)
    install(FILES ${LENSBOX_OPS_LIBRARY} DESTINATION ${CMAKE_INSTALL_LIBDIR} RENAME liblensbox_ops.so
      COMPONENT ${component} EXCLUDE_FROM_ALL)
  endif()
  if(LENSBOX_WITH_ONNX)  # opened by this name
    file(REAL_PATH ${LENSBOX_ONNXRUNTIME_LIBRARY} onnxruntime)
    install(FILES ${onnxruntime} DESTINATION ${CMAKE_INSTALL_LIBDIR} RENAME libonnxruntime.so.1
      COMPONENT ${component} EXCLUDE_FROM_ALL)
  endif()
endfunction()
if(LENSBOX_RUNTIME_PROGRAM)
  lensbox_install_device(device lensbox_runner ${program} "\$ORIGIN/${library_folder}")
endif()
lensbox_install_device(device-library lensbox_runtime_shared ${library} "\$ORIGIN")
