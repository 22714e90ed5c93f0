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

// Reads numbers of a TIFF structure.
class TiffReader {
 public:
  explicit TiffReader(std::span<const uint8_t> bytes) : bytes_(bytes) {}

  bool has_header() {
    if (bytes_.size() < 8) return false;
    big_endian_ = std::ranges::equal(bytes_.first(4), kBigEndian);
    return big_endian_ || std::ranges::equal(bytes_.first(4), kLittleEndian);
  }

  bool has(uint64_t at, uint64_t size) const { return at + size <= bytes_.size(); }

  uint32_t number(uint64_t at, int size) const {
    uint32_t value = 0;
    for (int i = 0; i < size; ++i) {
      value = value << 8 | bytes_[at + (big_endian_ ? i : size - 1 - i)];
    }
    return value;
  }

 private:
  std::span<const uint8_t> bytes_;
  bool big_endian_ = false;
};

}  // namespace

int exif_orientation(std::span<const uint8_t> tiff) {
  TiffReader reader(tiff);
  if (!reader.has_header()) return kUpright;
  const uint64_t directory = reader.number(4, 4);
  if (!reader.has(directory, 2)) return kUpright;
  const uint32_t entries = reader.number(directory, 2);
  for (uint32_t i = 0; i < entries; ++i) {
    // An entry: tag, type, count, value.
    const uint64_t entry = directory + 2 + 12 * uint64_t{i};
    if (!reader.has(entry, 12)) return kUpright;
    if (reader.number(entry, 2) != kOrientationTag) continue;
    const bool is_one_short = reader.number(entry + 2, 2) == kShort && reader.number(entry + 4, 4) == 1;
    const auto value = static_cast<int>(reader.number(entry + 8, 2));
    return is_one_short && value >= 1 && value <= 8 ? value : kUpright;
  }
  return kUpright;
}

}  // namespace lensbox
