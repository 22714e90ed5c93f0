#include "upright.h"

#include <gtest/gtest.h>

#include <string>

namespace {

using lensbox::Image;
using lensbox::Orientation;

// A picture of 3 x 2: one letter a pixel.
lensbox::StoredImage letters(int orientation) {
  return {Image{3, 2, 1, {'a', 'b', 'c', 'd', 'e', 'f'}}, 3, 2, 1, orientation};
}

std::string rows(const Image& image) {
  std::string text;
  for (int y = 0; y < image.height; ++y) {
    text.append(image.pixels.begin() + y * image.width, image.pixels.begin() + (y + 1) * image.width);
    text += y + 1 < image.height ? " " : "";
  }
  return text;
}

TEST(Upright, TheEightOrientations) {
  const char* const expected[] = {"abc def",  "cba fed",  "fed cba",  "def abc",
                                  "ad be cf", "da eb fc", "fc eb da", "cf be ad"};
  for (int orientation = 1; orientation <= 8; ++orientation) {
    const auto upright = turn_upright(letters(orientation), Orientation::kExif);
    EXPECT_EQ(rows(upright.image), expected[orientation - 1]) << orientation;
    EXPECT_EQ(upright.width, upright.image.width);
    EXPECT_EQ(upright.height, upright.image.height);
    EXPECT_EQ(lensbox::swaps_sides(orientation), upright.width == 2);
    EXPECT_EQ(rows(turn_upright(letters(orientation), Orientation::kStored).image), "abc def");
  }
}

// Larger than the squares that are copied at a time, and of no round size.
TEST(Upright, PixelsOfSeveralChannels) {
  for (const int channels : {1, 3, 4}) {
    Image image{101, 67, channels, {}};
    for (int i = 0; i < 101 * 67 * channels; ++i) {
      image.pixels.push_back(static_cast<uint8_t>(i * 31 / 7));
    }
    const auto upright = turn_upright({image, 101, 67, 1, 6}, Orientation::kExif);
    ASSERT_EQ(upright.image.width, 67);
    for (int y = 0; y < 101; ++y) {
      for (int x = 0; x < 67; ++x) {
        for (int c = 0; c < channels; ++c) {
          ASSERT_EQ(upright.image.pixels[(y * 67 + x) * channels + c],
                    image.pixels[((66 - x) * 101 + y) * channels + c]);
        }
      }
    }
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
