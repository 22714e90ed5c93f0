#include "png_file.h"

#include <zlib.h>

namespace {

std::string big_endian(uint32_t value) {
  std::string bytes;
  for (int shift = 24; shift >= 0; shift -= 8) {
    bytes += static_cast<char>(value >> shift);
  }
  return bytes;
}

std::string chunk(const std::string& name_and_content) {
  const auto checksum = crc32(0, reinterpret_cast<const Bytef*>(name_and_content.data()),
                              static_cast<uInt>(name_and_content.size()));
  return big_endian(static_cast<uint32_t>(name_and_content.size() - 4)) + name_and_content +
         big_endian(static_cast<uint32_t>(checksum));
}

std::string compressed(const std::string& text) {
  uLongf size = compressBound(text.size());
  std::string bytes(size, '\0');
  compress(reinterpret_cast<Bytef*>(bytes.data()), &size, reinterpret_cast<const Bytef*>(text.data()),
           text.size());
  bytes.resize(size);
  return bytes;
}

std::string header(uint32_t width, uint32_t height, char color_type) {
  return chunk("IHDR" + big_endian(width) + big_endian(height) + '\x08' + color_type + std::string(3, '\0'));
}

}  // namespace

std::string png_file(uint32_t width, uint32_t height, uint32_t channels) {
  constexpr char kColorTypes[] = {0, 0, 4, 2, 6};
  std::string rows;
  uint32_t sample = 0;
  for (uint32_t y = 0; y < height; ++y) {
    rows += '\0';  // no filter
    for (uint32_t x = 0; x < width * channels; ++x) {
      rows += static_cast<char>(7 * sample++);
    }
  }
  return "\x89PNG\r\n\x1a\n" + header(width, height, kColorTypes[channels]) +
         chunk("IDAT" + compressed(rows)) + chunk("IEND");
}

std::string with_size(std::string png, uint32_t width, uint32_t height) {
  return png.replace(8, 25, header(width, height, png[25]));
}
