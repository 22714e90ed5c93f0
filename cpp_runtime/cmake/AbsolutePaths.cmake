# Make paths absolute that are relative to the folder in which CMake is called: CMake's commands would look elsewhere, each
# in a place of its own. They may come as -D of any type, from pip (--config-settings=cmake.define.NAME=) or the environment.
# Included before project(), which reads the toolchain file.
function(lensbox_make_paths_absolute)
  execute_process(COMMAND pwd OUTPUT_VARIABLE folder OUTPUT_STRIP_TRAILING_WHITESPACE)
  foreach(name IN ITEMS
      CLI11_INCLUDE_DIR CMAKE_PREFIX_PATH JPEG_ROOT LENSBOX_CUDA_INCLUDE_DIR LENSBOX_DEVICE_LIBRARY_DIRS LENSBOX_OPS_LIBRARY
      LENSBOX_SYSROOT LENSBOX_TORCH_ROOT ONNXRUNTIME_ROOT OPENSSL_ROOT_DIR PNG_ROOT Python_EXECUTABLE ZLIB_ROOT
      nlohmann_json_INCLUDE_DIR)
    if("$ENV{${name}}" MATCHES "^[^/]" AND EXISTS "${folder}/$ENV{${name}}")
      set(ENV{${name}} "${folder}/$ENV{${name}}")
    endif()
    set(paths "")
    foreach(path IN LISTS ${name})
      if("${path}" MATCHES "^[^/]" AND EXISTS "${folder}/${path}")  # a program may be a name in PATH
        set(path "${folder}/${path}")
      endif()
      list(APPEND paths "${path}")
    endforeach()
    if(DEFINED CACHE{${name}} AND NOT paths STREQUAL "${${name}}")
      set(${name} "${paths}" CACHE PATH "" FORCE)
    endif()
  endforeach()
endfunction()
lensbox_make_paths_absolute()
