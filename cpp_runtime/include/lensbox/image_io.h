#pragma once

#include <lensbox/api.h>
#include <lensbox/reading.h>

#include <cstdint>
#include <filesystem>
#include <vector>

namespace lensbox {

// Larger images are refused: decoding and preprocessing one may take 20 bytes of memory for each pixel.
inline constexpr int64_t kMaxImagePixels = int64_t{1} << 26;  // 8192 x 8192

struct Image {
  int width;
  int height;
  int channels;                 // 1 gray, 3 RGB, 4 RGBA
  std::vector<uint8_t> pixels;  // [height][width][channels]
};

// Decodes a JPEG or PNG file at full size. Gray, RGB and RGBA stay as they are; gray with alpha loses the
// alpha, 16 bits become 8, CMYK becomes RGB, and so do palettes, or RGBA if they have transparent colors.
// Throws InputError if the file is absent, empty, of another format, damaged, truncated, too large, or has
// more scans than README.md allows.
LENSBOX_API Image read_image(const std::filesystem::path& path, Orientation orientation = Orientation::kExif);

// Throws InputError if the file cannot be written, and leaves at `path` what was there.
LENSBOX_API void write_png(const std::filesystem::path& path, const Image& image);

}  // namespace lensbox
