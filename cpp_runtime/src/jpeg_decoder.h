#pragma once

#include <lensbox/image_io.h>

#include <span>

namespace lensbox {

// Decodes a JPEG file as read_image says, with libjpeg-turbo. Throws InputError with the reason alone if it
// is damaged, truncated, too large, or of a kind that is not read: arithmetic coding, 12 bits, two
// components, or more scans than README.md allows for the size.
Image decode_jpeg(std::span<const uint8_t> file);

}  // namespace lensbox
