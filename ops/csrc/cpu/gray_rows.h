// Gray levels of pixels, as triangle_filter.h's luma() has them.
#pragma once

#include <cstdint>

namespace lensbox {

// Of `count` pixels that lie `pixel_bytes` (3 or 4) bytes apart: red, green, blue and perhaps a fourth byte,
// which is not read behind the last pixel.
void gray_of_interleaved(const uint8_t* pixels, int64_t pixel_bytes, int64_t count, uint8_t* out);

// Of `count` pixels whose colours are arrays.
void gray_of_planes(const uint8_t* red, const uint8_t* green, const uint8_t* blue, int64_t count,
                    uint8_t* out);

}  // namespace lensbox
