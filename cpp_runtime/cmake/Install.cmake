# The files that `cmake --install` installs: the shared library, its headers, the CMake package Lensbox and the program.
include(CMakePackageConfigHelpers)
include(GNUInstallDirs)

set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/Lensbox)

if(LENSBOX_RUNTIME_PROGRAM)
  install(TARGETS lensbox_runner RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
install(TARGETS lensbox_runtime_shared EXPORT LensboxTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(EXPORT LensboxTargets NAMESPACE lensbox:: DESTINATION ${package_folder})
install(DIRECTORY include/lensbox ${CMAKE_CURRENT_BINARY_DIR}/include/lensbox DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})

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
  ../ops/cmake/FindTorch.cmake
  DESTINATION ${package_folder})
install(FILES ../ops/cmake/LensboxOpsConfig.cmake ../ops/cmake/FindTorch.cmake
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/LensboxOps)

# The op library is built by itself (docs/cpp.md). Beside the shared library, whatever uses that finds it.
set(LENSBOX_OPS_LIBRARY "" CACHE FILEPATH "An op library to install beside the shared library")
if(LENSBOX_OPS_LIBRARY)
  if(NOT EXISTS ${LENSBOX_OPS_LIBRARY})
    message(FATAL_ERROR "LENSBOX_OPS_LIBRARY names a file that is not there: ${LENSBOX_OPS_LIBRARY}")
  endif()
  install(FILES ${LENSBOX_OPS_LIBRARY} DESTINATION ${CMAKE_INSTALL_LIBDIR} RENAME liblensbox_ops.so)
endif()

# `cmake --install BUILD --component device`: a folder to copy to a device, with the program, the op library and every
# shared library that they need but those of glibc, which belong to the system. For another machine, they lie where its
# compiler looks.
set(LENSBOX_DEVICE_LIBRARY_DIRS "" CACHE STRING "Further folders that hold shared libraries of the device folder")
if(LENSBOX_RUNTIME_PROGRAM)
  set(library_folders ${LENSBOX_DEVICE_LIBRARY_DIRS} ${LENSBOX_TORCH_ROOT}/lib)
  if(CMAKE_CROSSCOMPILING)
    list(APPEND library_folders ${CMAKE_CXX_IMPLICIT_LINK_DIRECTORIES})
  endif()
  install(TARGETS lensbox_runner RUNTIME_DEPENDENCY_SET device_libraries
    RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT device EXCLUDE_FROM_ALL)
  install(RUNTIME_DEPENDENCY_SET device_libraries
    DIRECTORIES ${library_folders}
    PRE_EXCLUDE_REGEXES "^ld-linux" "^lib(c|m|dl|rt|pthread|util|resolv)\\.so" "^libcuda\\.so" "^libnvidia-ml\\.so"
    LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT device EXCLUDE_FROM_ALL)
  if(LENSBOX_OPS_LIBRARY)
    install(FILES ${LENSBOX_OPS_LIBRARY} DESTINATION ${CMAKE_INSTALL_LIBDIR} RENAME liblensbox_ops.so
      COMPONENT device EXCLUDE_FROM_ALL)
  endif()
  if(LENSBOX_WITH_ONNX)  # opened by this name, where the library of the build is not there
    file(REAL_PATH ${LENSBOX_ONNXRUNTIME_LIBRARY} onnxruntime)
    install(FILES ${onnxruntime} DESTINATION ${CMAKE_INSTALL_LIBDIR} RENAME libonnxruntime.so.1
      COMPONENT device EXCLUDE_FROM_ALL)
  endif()
endif()
