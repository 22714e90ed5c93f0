#pragma once

#include <cstdint>
#include <span>

namespace lensbox {

// The orientation, 1..8, that EXIF data tell, a TIFF structure. 1, as it lies, if they do not tell, or are
// broken or cut off before they do.
int exif_orientation(std::span<const uint8_t> tiff);

}  // namespace lensbox
