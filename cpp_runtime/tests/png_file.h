#pragma once

#include <cstdint>
#include <string>

// Return a PNG file with 8 bits a sample: 1 channel gray, 2 gray and alpha, 3 RGB, 4 RGBA. The samples count
// up by 7.
std::string png_file(uint32_t width, uint32_t height, uint32_t channels);

// Return the PNG file with another width and height in its header, and the checksum for them.
std::string with_size(std::string png, uint32_t width, uint32_t height);
