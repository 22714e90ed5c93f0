#pragma once

#include <zlib.h>

#include <cstdint>
#include <string>

inline std::string big_endian(uint32_t value) {
  std::string bytes;
  for (int shift = 24; shift >= 0; shift -= 8) {
    bytes += static_cast<char>(value >> shift);
  }
  return bytes;
}

inline std::string png_chunk(const std::string& name_and_content) {
  const auto checksum = crc32(0, reinterpret_cast<const Bytef*>(name_and_content.data()),
                              static_cast<uInt>(name_and_content.size()));
  return big_endian(static_cast<uint32_t>(name_and_content.size() - 4)) + name_and_content +
         big_endian(static_cast<uint32_t>(checksum));
}

inline std::string compressed(const std::string& text) {
  uLongf size = compressBound(text.size());
  std::string bytes(size, '\0');
  compress(reinterpret_cast<Bytef*>(bytes.data()), &size, reinterpret_cast<const Bytef*>(text.data()),
           text.size());
  bytes.resize(size);
  return bytes;
}

// Return a PNG file with 8 bits a sample: 1 channel gray, 2 gray and alpha, 3 RGB, 4 RGBA. The samples count
// up by 7.
inline std::string png_file(uint32_t width, uint32_t height, uint32_t channels) {
  constexpr char kColorTypes[] = {0, 0, 4, 2, 6};
  std::string rows;
  uint32_t sample = 0;
  for (uint32_t y = 0; y < height; ++y) {
    rows += '\0';  // no filter
    for (uint32_t x = 0; x < width * channels; ++x) {
      rows += static_cast<char>(7 * sample++);
    }
  }
  return "\x89PNG\r\n\x1a\n" +
         png_chunk("IHDR" + big_endian(width) + big_endian(height) + '\x08' + kColorTypes[channels] +
                   std::string(3, '\0')) +
         png_chunk("IDAT" + compressed(rows)) + png_chunk("IEND");
}
