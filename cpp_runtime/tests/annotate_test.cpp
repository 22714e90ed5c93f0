#include <gtest/gtest.h>
#include <lensbox/annotate.h>
#include <lensbox/error.h>

#include <algorithm>
#include <limits>
#include <set>
#include <string>

#include "expect_error.h"

namespace {

using lensbox::Detection;
using lensbox::Image;

Image plain_image(int width, int height, int channels, uint8_t value = 128) {
  return {width, height, channels, std::vector<uint8_t>(size_t{1} * width * height * channels, value)};
}

std::vector<uint8_t> pixel(const Image& image, int x, int y) {
  const auto begin = image.pixels.begin() + (y * image.width + x) * image.channels;
  return {begin, begin + image.channels};
}

int changed_pixels(const Image& before, const Image& after) {
  int changed = 0;
  for (int y = 0; y < before.height; ++y) {
    for (int x = 0; x < before.width; ++x) {
      changed += pixel(before, x, y) != pixel(after, x, y);
    }
  }
  return changed;
}

TEST(Annotate, DrawsTheEdgesAndLeavesTheInsideAndTheRest) {
  const Image image = plain_image(200, 150, 3);
  const Image drawn = annotate(image, std::vector<Detection>{{{50, 60, 120, 140}, 0.9F}});
  for (const auto& [x, y] : {std::pair{50, 100}, {119, 100}, {85, 60}, {85, 139}}) {
    EXPECT_NE(pixel(drawn, x, y), pixel(image, x, y)) << x << ", " << y;
  }
  for (const auto& [x, y] : {std::pair{85, 100}, {20, 100}, {150, 100}, {85, 148}}) {
    EXPECT_EQ(pixel(drawn, x, y), pixel(image, x, y)) << x << ", " << y;
  }
}

TEST(Annotate, WithoutDetectionsChangesNothing) {
  const Image image = plain_image(20, 10, 3);
  EXPECT_EQ(annotate(image, {}).pixels, image.pixels);
}

TEST(Annotate, RefusesImagesThatItCannotDrawOn) {
  const std::vector<Detection> detections{{{0, 0, 20, 10}, 0.9F}};
  Image short_by_one = plain_image(20, 10, 3);
  short_by_one.pixels.pop_back();
  expect_error<lensbox::InputError>([&] { annotate(short_by_one, detections); },
                                    {"image: pixels must be 20 x 10 x 3 = 600 bytes, got 599"});
  expect_error<lensbox::InputError>([&] { annotate(plain_image(20, 10, 2), detections); },
                                    {"image: channels must be 1, 3 or 4, got 2"});
}

TEST(Annotate, TurnsGrayToColor) {
  const Image drawn = annotate(plain_image(30, 20, 1, 77), {});
  EXPECT_EQ(drawn.channels, 3);
  EXPECT_EQ(pixel(drawn, 29, 19), (std::vector<uint8_t>{77, 77, 77}));
}

TEST(Annotate, DrawsOpaquelyOnTransparentImages) {
  const Image drawn = annotate(plain_image(100, 100, 4, 0), std::vector<Detection>{{{20, 40, 80, 80}, 0.5F}});
  EXPECT_EQ(drawn.channels, 4);
  EXPECT_EQ(pixel(drawn, 20, 60)[3], 255);
  EXPECT_EQ(pixel(drawn, 50, 60)[3], 0);
}

TEST(Annotate, LinesGrowWithTheImage) {
  const auto line_width = [](int size) {
    const auto edge = static_cast<float>(size);
    const Image image = plain_image(size, size, 3);
    const Image drawn =
        annotate(image, std::vector<Detection>{{{edge / 2, edge / 4, edge * 2, edge * 2}, 0.5F}});
    int width = 0;
    for (int x = 0; x < size; ++x) {
      width += pixel(drawn, x, size - 1) != pixel(image, x, size - 1);
    }
    return width;
  };
  EXPECT_GT(line_width(2000), 2 * line_width(500));
}

TEST(Annotate, TheTagShowsTheScore) {
  const Image image = plain_image(300, 300, 3);
  std::set<std::string> pictures;
  for (const float score : {0.0F, 0.07F, 0.5F, 0.51F, 0.98F, 1.0F}) {
    const Image drawn = annotate(image, std::vector<Detection>{{{50, 60, 120, 140}, score}});
    pictures.emplace(drawn.pixels.begin(), drawn.pixels.end());
  }
  EXPECT_EQ(pictures.size(), 6U);
}

TEST(Annotate, TheBestDetectionIsOnTop) {
  const Image image = plain_image(200, 200, 3);
  const Detection best{{50, 60, 120, 140}, 0.9F};
  const Image alone = annotate(image, std::vector{best});
  const Image crowded = annotate(image, std::vector<Detection>{best, {{20, 100, 180, 180}, 0.3F}});
  EXPECT_EQ(pixel(crowded, 50, 100), pixel(alone, 50, 100));
}

TEST(Annotate, KeepsToTheImage) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const Image image = plain_image(3, 2, 3);
  const std::vector<Detection> detections{
      {{-1e30F, -5, 1e30F, kInfinity}, 2.0F}, {{2, 1, 0, 0}, -1.0F}, {{0, 0, 3, 2}, 1.0F}};
  EXPECT_GT(changed_pixels(image, annotate(image, detections)), 0);
}

// How the picture of one box looks with these names of classes.
std::string with_label(int64_t label, const std::vector<std::string>& classes, int side = 300) {
  const Image image = plain_image(side, side, 3);
  const Image drawn = annotate(image, std::vector<Detection>{{{50, 60, 120, 140}, 0.5F, label}}, classes);
  return {drawn.pixels.begin(), drawn.pixels.end()};
}

TEST(Annotate, TheTagShowsTheNameOfTheClass) {
  const std::vector<std::string> names{"cat", "dog", "act", "Cat", "c at", "h\u00e9risson", "", "\xff"};
  std::set<std::string> pictures;
  for (const std::string& name : names) {
    pictures.insert(with_label(0, {name}));
  }
  EXPECT_EQ(pictures.size(), names.size());
  EXPECT_EQ(with_label(0, {""}), with_label(0, {}));
}

TEST(Annotate, CharactersOutsideOfAsciiAreFramesOneForEach) {
  EXPECT_EQ(with_label(0, {"h\u00e9risson"}), with_label(0, {"h\u732brisson"}));
  EXPECT_EQ(with_label(0, {"\U0001f600"}), with_label(0, {"\n"}));
  EXPECT_NE(with_label(0, {"\u00e9"}), with_label(0, {"\u00e9\u00e9"}));
}

TEST(Annotate, ALongNameIsCutAndTheScoreIsSeen) {
  const std::string name(200, 'x');
  EXPECT_EQ(with_label(0, {name}), with_label(0, {name + "y"}));
  const Image image = plain_image(300, 300, 3);
  const auto draw = [&](float score) {
    return annotate(image, std::vector<Detection>{{{50, 60, 120, 140}, score}}, std::vector{name}).pixels;
  };
  EXPECT_NE(draw(0.5F), draw(0.6F));
  EXPECT_EQ(with_label(0, {name}, 20), with_label(0, {}, 20));  // no place for any of it
}

TEST(Annotate, EachClassHasAColor) {
  const Image image = plain_image(200, 150, 3);
  std::set<std::string> colors;
  for (int64_t label = 0; label < 24; ++label) {
    const Image drawn = annotate(image, std::vector<Detection>{{{50, 60, 120, 140}, 0.9F, label}});
    const std::vector<uint8_t> color = pixel(drawn, 50, 100);
    colors.emplace(color.begin(), color.end());
  }
  EXPECT_EQ(colors.size(), 12U);
}

TEST(Annotate, PointsAreDots) {
  const Image image = plain_image(200, 150, 3);
  const std::vector<lensbox::Extra> extras{{"age", {}, lensbox::ExtraKind::kValues},
                                           {"eyes", {2, 2}, lensbox::ExtraKind::kPoints}};
  const Detection detection{
      {50, 60, 120, 140}, 0.9F, 0, {std::vector<int64_t>{30}, std::vector<float>{80, 100, 10, 20}}};
  const Image drawn = annotate(image, std::vector{detection}, {}, extras);
  const Image without = annotate(image, std::vector{detection});
  for (const auto& [x, y] : {std::pair{80, 100}, {10, 20}}) {
    EXPECT_EQ(pixel(drawn, x, y), pixel(drawn, 50, 100)) << "the color of the box";
    EXPECT_NE(pixel(drawn, x + 3, y), pixel(drawn, x, y)) << "an outline";
  }
  EXPECT_EQ(pixel(drawn, 95, 100), pixel(image, 95, 100));
  EXPECT_LT(changed_pixels(without, drawn), 150);
}

TEST(Annotate, PointsOutsideOfTheImageAreNotDrawn) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const Image image = plain_image(200, 150, 3);
  const std::vector<lensbox::Extra> extras{{"eyes", {4, 2}, lensbox::ExtraKind::kPoints}};
  const Detection detection{{50, 60, 120, 140},
                            0.9F,
                            0,
                            {std::vector<float>{-50, 20, 1e30F, 1e30F, kInfinity, 10, 20,
                                                std::numeric_limits<float>::quiet_NaN()}}};
  EXPECT_EQ(annotate(image, std::vector{detection}, {}, extras).pixels,
            annotate(image, std::vector{detection}).pixels);
}

}  // namespace
