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

# The op library is built by itself (docs/cpp.md). Beside the shared library, whatever uses that finds it.
set(LENSBOX_OPS_LIBRARY "" CACHE FILEPATH "An op library to install beside the shared library")
if(LENSBOX_OPS_LIBRARY)
  if(NOT EXISTS ${LENSBOX_OPS_LIBRARY})
    message(FATAL_ERROR "LENSBOX_OPS_LIBRARY names a file that is not there: ${LENSBOX_OPS_LIBRARY}")
  endif()
  install(FILES ${LENSBOX_OPS_LIBRARY} DESTINATION ${CMAKE_INSTALL_LIBDIR} RENAME liblensbox_ops.so)
endif()
