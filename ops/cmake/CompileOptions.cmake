# Compiler options of every source file, and the GPU architectures. Symbols are hidden. The compiler never fuses
# a * b + c, so CPU and CUDA round alike and NMS keeps the same boxes on both.

option(LENSBOX_WARNINGS_AS_ERRORS "Make compiler warnings errors, as CI does" OFF)
set(CMAKE_COMPILE_WARNING_AS_ERROR ${LENSBOX_WARNINGS_AS_ERRORS})

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()

add_library(lensbox_compile_options INTERFACE)
target_compile_options(lensbox_compile_options INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -ffp-contract=off -fno-math-errno -fno-trapping-math>)
# GCC 13 warns of an overflow in std::vector<bool>::reserve, which torch's autograd::Function calls.
target_compile_options(lensbox_compile_options INTERFACE
  $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CXX_COMPILER_ID:GNU>>:-Wno-array-bounds;-Wno-stringop-overflow>)
target_link_options(lensbox_compile_options INTERFACE -Wl,--no-undefined)

if(LENSBOX_SANITIZE)
  # vptr would ask for type information that torch's libraries keep to themselves.
  set(sanitizers -fsanitize=address,undefined -fno-sanitize=vptr -fno-sanitize-recover=all)
  target_compile_options(lensbox_compile_options INTERFACE ${sanitizers} -O1 -fno-omit-frame-pointer -g1)
  # Their run-time is preloaded into the process, so its symbols stay open here.
  target_link_options(lensbox_compile_options INTERFACE ${sanitizers} -Wl,--allow-shlib-undefined -Wl,-z,undefs)
endif()

add_library(lensbox_cuda_options INTERFACE)
target_compile_options(lensbox_cuda_options INTERFACE
  $<$<COMPILE_LANGUAGE:CUDA>:--fmad=false -Xcompiler=-Wall,-Wextra --threads=0>)

set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_CUDA_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_CUDA_STANDARD 20)
set(CMAKE_CUDA_STANDARD_REQUIRED ON)

# GPU architectures from the names that CMake's and torch's users know; otherwise all that Lensbox supports.
if(DEFINED LENSBOX_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES ${LENSBOX_CUDA_ARCHITECTURES})
elseif(NOT DEFINED CMAKE_CUDA_ARCHITECTURES AND NOT "$ENV{TORCH_CUDA_ARCH_LIST}" STREQUAL "")
  # "8.0 9.0a;12.0+PTX" becomes "80-real;90a-real;120": without +PTX only for that architecture.
  string(REGEX REPLACE "[ ,]+" ";" names "$ENV{TORCH_CUDA_ARCH_LIST}")
  set(CMAKE_CUDA_ARCHITECTURES "")
  foreach(name IN LISTS names)
    if(NOT name MATCHES "^([0-9]+)\\.([0-9])(a?)(\\+PTX)?$")
      message(FATAL_ERROR "TORCH_CUDA_ARCH_LIST must hold architectures such as \"8.0;9.0+PTX\", got \"${name}\"")
    endif()
    set(real "-real")
    if(CMAKE_MATCH_4)
      set(real "")
    endif()
    list(APPEND CMAKE_CUDA_ARCHITECTURES "${CMAKE_MATCH_1}${CMAKE_MATCH_2}${CMAKE_MATCH_3}${real}")
  endforeach()
elseif(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES 75-real 80-real 86-real 89-real 90-real 100-real 120)
endif()
