# Finds libjpeg-turbo, libpng and the zlib that it needs: the imported targets JPEG::JPEG, PNG::PNG and ZLIB::ZLIB.
# Looks in the system's folders and in <prefix>/include and <prefix>/lib of each entry of CMAKE_PREFIX_PATH, JPEG_ROOT, PNG_ROOT and
# ZLIB_ROOT.
find_package(JPEG)
find_package(PNG 1.6)
if(NOT JPEG_FOUND OR NOT PNG_FOUND)
  message(FATAL_ERROR
    "libjpeg-turbo or libpng was not found. Install them (Debian, Ubuntu: apt-get install libjpeg-dev libpng-dev), "
    "or add the folder that has them in include/ and lib/ to CMAKE_PREFIX_PATH.")
endif()
