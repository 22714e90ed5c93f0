#include <algorithm>
#include <array>

#include "images/decoders.h"

namespace lensbox {
namespace {

constexpr int kUpright = 1;
constexpr uint32_t kOrientationTag = 0x0112;
constexpr uint32_t kShort = 3;

constexpr std::array<uint8_t, 4> kLittleEndian{'I', 'I', 42, 0};
constexpr std::array<uint8_t, 4> kBigEndian{'M', 'M', 0, 42};

}  // namespace

int exif_orientation(std::span<const uint8_t> tiff) {
  if (tiff.size() < 8) return kUpright;
  const bool big_endian = std::ranges::equal(tiff.first(4), kBigEndian);
  if (!big_endian && !std::ranges::equal(tiff.first(4), kLittleEndian)) return kUpright;
  const auto has = [&](uint64_t at, uint64_t size) { return at + size <= tiff.size(); };
  const auto number = [&](uint64_t at, int size) {
    uint32_t value = 0;
    for (int i = 0; i < size; ++i) {
      value = value << 8 | tiff[at + (big_endian ? i : size - 1 - i)];
    }
    return value;
  };
  const uint64_t directory = number(4, 4);
  if (!has(directory, 2)) return kUpright;
  const uint32_t entries = number(directory, 2);
  for (uint32_t i = 0; i < entries; ++i) {
    // An entry: tag, type, count, value.
    const uint64_t entry = directory + 2 + 12 * uint64_t{i};
    if (!has(entry, 12)) return kUpright;
    if (number(entry, 2) != kOrientationTag) continue;
    const bool is_one_short = number(entry + 2, 2) == kShort && number(entry + 4, 4) == 1;
    const auto value = static_cast<int>(number(entry + 8, 2));
    return is_one_short && value >= 1 && value <= 8 ? value : kUpright;
  }
  return kUpright;
}

}  // namespace lensbox
