#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "images/decoders.h"

namespace lensbox {
namespace {

constexpr int kUpright = 1;
constexpr uint32_t kOrientationTag = 0x0112;
constexpr uint32_t kShort = 3;

constexpr std::array<uint8_t, 4> kLittleEndian{'I', 'I', 42, 0};
constexpr std::array<uint8_t, 4> kBigEndian{'M', 'M', 0, 42};

// By EXIF orientation, 1..8.
constexpr std::array<Turn, 9> kTurns{{{},
                                      {false, false, false},
                                      {true, false, false},
                                      {true, true, false},
                                      {false, true, false},
                                      {false, false, true},
                                      {false, true, true},
                                      {true, true, true},
                                      {true, false, true}}};

// Copy square by square: the rows of one image are columns of the other, and a column touches as many cache
// lines as it has pixels.
template <int channels>
void copy_turned(const Pixels& stored, Turn turn, const Pixels& upright) {
  constexpr int64_t kSquare = 32;
  const int64_t height = upright.height;
  const int64_t width = upright.width;
  const int64_t row = stored.stride;
  // The distance in memory between stored pixels that are neighbours in the upright image.
  int64_t right = turn.mirror_x ? -channels : channels;
  int64_t down = turn.mirror_y ? -row : row;
  const uint8_t* const corner =
      stored.row(turn.mirror_y ? stored.height - 1 : 0) + (turn.mirror_x ? channels * (stored.width - 1) : 0);
  if (turn.swap) std::swap(right, down);

  for (int64_t top = 0; top < height; top += kSquare) {
    const int64_t bottom = std::min(top + kSquare, height);
    for (int64_t left = 0; left < width; left += kSquare) {
      const int64_t end = std::min(left + kSquare, width);
      for (int64_t y = top; y < bottom; ++y) {
        uint8_t* to = upright.row(y) + left * channels;
        const uint8_t* from = corner + y * down + left * right;
        for (int64_t x = left; x < end; ++x, to += channels, from += right) {
          std::memcpy(to, from, channels);
        }
      }
    }
  }
}

Pixels turned(const Pixels& stored, Turn turn) {
  if (!turn.mirror_x && !turn.mirror_y && !turn.swap) return stored;
  Pixels upright = turn.swap ? new_pixels(stored.height, stored.width, stored.channels)
                             : new_pixels(stored.width, stored.height, stored.channels);
  if (stored.channels == 1) copy_turned<1>(stored, turn, upright);
  if (stored.channels == 3) copy_turned<3>(stored, turn, upright);
  if (stored.channels == 4) copy_turned<4>(stored, turn, upright);
  return upright;
}

// Return the span of pixels that begin at 0 and reach to `end` along a side, also after mirroring. `end` may
// be beyond the side.
std::pair<float, float> span_on_side(int64_t end, int64_t side, bool mirror) {
  const int64_t begin = mirror ? side - end : 0;
  return {static_cast<float>(begin), static_cast<float>(begin + end)};
}

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

Turn turn_of(int exif_orientation, Orientation orientation) {
  return kTurns.at(orientation == Orientation::kExif ? exif_orientation : kUpright);
}

DecodedPhoto turn_upright(StoredImage stored, Orientation orientation) {
  const Turn turn = turn_of(stored.orientation, orientation);
  auto x = span_on_side(stored.pixels.width * stored.reduction, stored.width, turn.mirror_x);
  auto y = span_on_side(stored.pixels.height * stored.reduction, stored.height, turn.mirror_y);
  if (turn.swap) {
    std::swap(x, y);
    std::swap(stored.width, stored.height);
  }
  return {.pixels = turned(stored.pixels, turn),
          .width = stored.width,
          .height = stored.height,
          .window = {x.first, y.first, x.second, y.second}};
}

}  // namespace lensbox
