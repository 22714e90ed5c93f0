#pragma once

#include <cstdint>
#include <span>

namespace lensbox {

// Return the orientation, 1..8, in EXIF data, a TIFF structure; 1 (as stored) if there is none, or if the
// data are damaged or truncated before it.
int exif_orientation(std::span<const uint8_t> tiff);

}  // namespace lensbox
