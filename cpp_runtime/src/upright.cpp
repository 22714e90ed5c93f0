#include "upright.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "new_image.h"

namespace lensbox {
namespace {

// The eight orientations: the stored picture is mirrored, and then its rows may become columns.
struct Turn {
  bool mirror_x;  // left and right
  bool mirror_y;  // top and bottom
  bool swap;      // along the main diagonal
};

Turn turn_for(int exif_orientation) {
  switch (exif_orientation) {
    case 2:
      return {true, false, false};
    case 3:
      return {true, true, false};
    case 4:
      return {false, true, false};
    case 5:
      return {false, false, true};
    case 6:
      return {false, true, true};
    case 7:
      return {true, true, true};
    case 8:
      return {true, false, true};
    default:
      return {false, false, false};
  }
}

// Square by square, because the rows of one are columns of the other, and a column touches as many cache
// lines as it has pixels.
template <int channels>
void copy_turned(const Image& stored, Turn turn, Image& upright) {
  constexpr int kSquare = 32;
  const int64_t row = int64_t{channels} * stored.width;
  // How far apart in memory the pixels lie that are neighbours in the upright image.
  int64_t right = turn.mirror_x ? -channels : channels;
  int64_t down = turn.mirror_y ? -row : row;
  const uint8_t* const corner = stored.pixels.data() + (turn.mirror_x ? row - channels : 0) +
                                (turn.mirror_y ? row * (stored.height - 1) : 0);
  if (turn.swap) std::swap(right, down);

  for (int top = 0; top < upright.height; top += kSquare) {
    const int bottom = std::min(top + kSquare, upright.height);
    for (int left = 0; left < upright.width; left += kSquare) {
      const int end = std::min(left + kSquare, upright.width);
      for (int y = top; y < bottom; ++y) {
        uint8_t* to = &upright.pixels[(int64_t{y} * upright.width + left) * channels];
        const uint8_t* from = corner + y * down + left * right;
        for (int x = left; x < end; ++x, to += channels, from += right) {
          std::memcpy(to, from, channels);
        }
      }
    }
  }
}

Image turned(Image stored, Turn turn) {
  if (!turn.mirror_x && !turn.mirror_y && !turn.swap) return stored;
  Image upright = turn.swap ? new_image(stored.height, stored.width, stored.channels)
                            : new_image(stored.width, stored.height, stored.channels);
  if (stored.channels == 1) copy_turned<1>(stored, turn, upright);
  if (stored.channels == 3) copy_turned<3>(stored, turn, upright);
  if (stored.channels == 4) copy_turned<4>(stored, turn, upright);
  return upright;
}

// Where pixels that begin at 0 and reach to `end` lie along a side, also after it was mirrored. `end` may be
// beyond the side.
std::pair<float, float> span_on_side(int end, int side, bool mirror) {
  const int begin = mirror ? side - end : 0;
  return {static_cast<float>(begin), static_cast<float>(begin + end)};
}

}  // namespace

bool swaps_sides(int exif_orientation) {
  return turn_for(exif_orientation).swap;
}

UprightImage turn_upright(StoredImage stored, Orientation orientation) {
  const Turn turn = turn_for(orientation == Orientation::kExif ? stored.orientation : 1);
  auto x = span_on_side(stored.image.width * stored.reduction, stored.width, turn.mirror_x);
  auto y = span_on_side(stored.image.height * stored.reduction, stored.height, turn.mirror_y);
  if (turn.swap) {
    std::swap(x, y);
    std::swap(stored.width, stored.height);
  }
  return {.image = turned(std::move(stored.image), turn),
          .width = stored.width,
          .height = stored.height,
          .window = {x.first, y.first, x.second, y.second}};
}

}  // namespace lensbox
