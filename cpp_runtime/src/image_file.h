#pragma once

#include <filesystem>
#include <span>

#include "upright.h"

namespace lensbox {

// Decodes a JPEG or PNG file and turns it upright, as read_image and read_photo say. Throws InputError, with
// the path.
UprightImage read_image_file(const std::filesystem::path& path, const ReadOptions& options);

// The same of a file in memory. Throws InputError with the reason alone.
UprightImage decode_image_file(std::span<const uint8_t> file, const ReadOptions& options);

}  // namespace lensbox
