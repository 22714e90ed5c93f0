#pragma once

#include <cstdint>
#include <span>

namespace lensbox {

bool is_jpeg(std::span<const uint8_t> file);

// Whether the image data of a JPEG file go on to the end-of-image marker. stb_image paints what is missing of
// a truncated file in gray and reports success, which would be detected in as if it were the photograph.
bool jpeg_is_complete(std::span<const uint8_t> file);

}  // namespace lensbox
