#pragma once

#include <lensbox/image_io.h>

namespace lensbox {

// Throws InputError if an image of that size is too large to be read.
void check_size(int64_t width, int64_t height);

// Throws InputError unless the image has sides of at least 1, 1 to 4 channels, and as many pixels as they
// say.
void check_image(const Image& image);

// An image of zeros. Throws InputError as check_size does.
Image new_image(int64_t width, int64_t height, int channels);

}  // namespace lensbox
