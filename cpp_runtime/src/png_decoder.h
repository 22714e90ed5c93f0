#pragma once

#include <span>

#include "stored_image.h"

namespace lensbox {

// Decodes a PNG file as read_image says, with libpng. Throws InputError with the reason alone if it is
// damaged (any checksum, of chunks that are not read too, and anything that libpng would only warn of),
// truncated or too large.
StoredImage decode_png(std::span<const uint8_t> file);

}  // namespace lensbox
