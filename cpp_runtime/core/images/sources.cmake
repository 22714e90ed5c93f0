# Sets LENSBOX_IMAGE_SOURCES, the image reader, and finds its libraries. Both the C++ runtime and the Python package's
# liblensbox_images.so include it. CMake looks in the system's folders and in <prefix>/include and <prefix>/lib of each entry
# of CMAKE_PREFIX_PATH, JPEG_ROOT, PNG_ROOT and ZLIB_ROOT.
set(LENSBOX_IMAGE_SOURCES
  ${CMAKE_CURRENT_LIST_DIR}/frame.cpp
  ${CMAKE_CURRENT_LIST_DIR}/jpeg_decoder.cpp
  ${CMAKE_CURRENT_LIST_DIR}/photo.cpp
  ${CMAKE_CURRENT_LIST_DIR}/png_decoder.cpp
  ${CMAKE_CURRENT_LIST_DIR}/upright.cpp)

find_package(JPEG)
find_package(PNG 1.6)
if(NOT JPEG_FOUND OR NOT PNG_FOUND)
  message(FATAL_ERROR
    "libjpeg-turbo or libpng was not found. Install them (Debian, Ubuntu: apt-get install libjpeg-dev libpng-dev), "
    "or add the folder that has them in include/ and lib/ to CMAKE_PREFIX_PATH.")
endif()
