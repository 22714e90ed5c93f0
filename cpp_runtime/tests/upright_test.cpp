#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <string>

#include "images/decoders.h"

namespace {

using lensbox::Orientation;

// A picture of 3 x 2: one letter a pixel.
lensbox::StoredImage letters(int orientation) {
  return {at::tensor({'a', 'b', 'c', 'd', 'e', 'f'}, at::kByte).view({2, 3, 1}), 3, 2, 1, orientation};
}

std::string rows(const lensbox::Photo& photo) {
  const at::Tensor pixels = photo.pixels[0].contiguous();
  const auto* const bytes = reinterpret_cast<const char*>(pixels.const_data_ptr<uint8_t>());
  std::string text;
  for (int64_t y = 0; y < pixels.size(0); ++y) {
    if (y > 0) text += ' ';
    text.append(bytes + y * pixels.size(1), static_cast<size_t>(pixels.size(1)));
  }
  return text;
}

TEST(Upright, TheEightOrientations) {
  const char* const expected[] = {"abc def",  "cba fed",  "fed cba",  "def abc",
                                  "ad be cf", "da eb fc", "fc eb da", "cf be ad"};
  for (int orientation = 1; orientation <= 8; ++orientation) {
    const auto upright = turn_upright(letters(orientation), Orientation::kExif);
    EXPECT_EQ(rows(upright), expected[orientation - 1]) << orientation;
    EXPECT_EQ(upright.width, upright.pixels.size(2));
    EXPECT_EQ(upright.height, upright.pixels.size(1));
    EXPECT_EQ(lensbox::swaps_sides(orientation), upright.width == 2);
    EXPECT_EQ(rows(turn_upright(letters(orientation), Orientation::kStored)), "abc def");
  }
}

// Larger than the squares that are copied at a time, and of no round size.
TEST(Upright, PixelsOfSeveralChannels) {
  for (const int64_t channels : {1, 3, 4}) {
    const at::Tensor image =
        (at::arange(101 * 67 * channels) * 31 / 7).to(at::kByte).view({67, 101, channels});
    const auto upright = turn_upright({image, 101, 67, 1, 6}, Orientation::kExif);
    EXPECT_TRUE(at::equal(upright.pixels, image.flip(0).permute({2, 1, 0})));
  }
}

// 3 x 2 pixels of a picture of 9 x 8 at a quarter of its size: they show 12 x 8 of it.
TEST(Upright, TheWindowIsTurnedWithThePicture) {
  using Window = std::array<float, 4>;
  const Window expected[] = {{0, 0, 12, 8}, {-3, 0, 9, 8}, {-3, 0, 9, 8}, {0, 0, 12, 8},
                             {0, 0, 8, 12}, {0, 0, 8, 12}, {0, -3, 8, 9}, {0, -3, 8, 9}};
  for (int orientation = 1; orientation <= 8; ++orientation) {
    auto stored = letters(orientation);
    stored.width = 9;
    stored.height = 8;
    stored.reduction = 4;
    const auto upright = turn_upright(stored, Orientation::kExif);
    EXPECT_EQ(upright.window, expected[orientation - 1]) << orientation;
    EXPECT_EQ(upright.width, orientation < 5 ? 9 : 8);
    EXPECT_EQ(upright.height, orientation < 5 ? 8 : 9);
  }
}

}  // namespace
