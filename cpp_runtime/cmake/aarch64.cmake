# Toolchain file: build for 64-bit ARM on another machine, with Debian's and Ubuntu's package g++-aarch64-linux-gnu.
#
#   -DCMAKE_TOOLCHAIN_FILE=cpp_runtime/cmake/aarch64.cmake -DLENSBOX_SYSROOT=FOLDER
#
# LENSBOX_SYSROOT, also an environment variable: the root folder of a system with the arm64 packages of the libraries
# (docs/arm.md has the command), or the copy of a device's. Nothing of this machine is taken in place of a file that
# is missing there. Folders in CMAKE_PREFIX_PATH and ONNXRUNTIME_ROOT may lie elsewhere.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)

list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES LENSBOX_SYSROOT)
set(LENSBOX_SYSROOT "$ENV{LENSBOX_SYSROOT}" CACHE PATH "Root folder of an arm64 system")  # absolute, if it was given
if(NOT EXISTS "${LENSBOX_SYSROOT}/usr/include")
  message(FATAL_ERROR
    "LENSBOX_SYSROOT must be the root folder of an arm64 system, with usr/include, got \"${LENSBOX_SYSROOT}\"")
endif()
set(CMAKE_SYSROOT "${LENSBOX_SYSROOT}")
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)

# ctest runs the tests with it, if it is installed (apt: qemu-user).
find_program(LENSBOX_QEMU qemu-aarch64)
if(LENSBOX_QEMU)
  set(CMAKE_CROSSCOMPILING_EMULATOR ${LENSBOX_QEMU} -cpu max -L ${CMAKE_SYSROOT})
endif()
