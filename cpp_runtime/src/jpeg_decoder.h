#pragma once

#include <span>

#include "stored_image.h"

namespace lensbox {

// Decodes a JPEG file with libjpeg-turbo: for a canvas at the scale that the options ask for, and for a gray
// canvas the luma alone. Throws InputError with the reason alone if it is damaged, truncated, too large, or
// of a kind that is not read: arithmetic coding, 12 bits, two components, or more scans than README.md allows
// for the size.
StoredImage decode_jpeg(std::span<const uint8_t> file, const ReadOptions& options);

}  // namespace lensbox
