#include <lensbox/annotate.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>

namespace lensbox {
namespace {

struct Color {
  uint8_t red, green, blue;
};

constexpr Color kLine{57, 255, 120};
constexpr Color kOutline{10, 40, 20};  // beside the line, and the digits: seen on light and dark backgrounds

// Pixels x1 <= x < x2, y1 <= y < y2.
struct Rectangle {
  int x1, y1, x2, y2;

  Rectangle grown(int by) const { return {x1 - by, y1 - by, x2 + by, y2 + by}; }
};

// Digits and the percent sign, 5 x 7: one number a row, the highest of five bits is the leftmost pixel.
constexpr int kGlyphWidth = 5;
constexpr int kGlyphHeight = 7;
constexpr std::string_view kGlyphNames = "0123456789%";
constexpr std::array<std::array<uint8_t, kGlyphHeight>, 11> kGlyphs{{
    {0b01110, 0b10001, 0b10011, 0b10101, 0b11001, 0b10001, 0b01110},
    {0b00100, 0b01100, 0b00100, 0b00100, 0b00100, 0b00100, 0b01110},
    {0b01110, 0b10001, 0b00001, 0b00010, 0b00100, 0b01000, 0b11111},
    {0b11111, 0b00010, 0b00100, 0b00010, 0b00001, 0b10001, 0b01110},
    {0b00010, 0b00110, 0b01010, 0b10010, 0b11111, 0b00010, 0b00010},
    {0b11111, 0b10000, 0b11110, 0b00001, 0b00001, 0b10001, 0b01110},
    {0b00110, 0b01000, 0b10000, 0b11110, 0b10001, 0b10001, 0b01110},
    {0b11111, 0b00001, 0b00010, 0b00100, 0b01000, 0b01000, 0b01000},
    {0b01110, 0b10001, 0b10001, 0b01110, 0b10001, 0b10001, 0b01110},
    {0b01110, 0b10001, 0b10001, 0b01111, 0b00001, 0b00010, 0b01100},
    {0b11000, 0b11001, 0b00010, 0b00100, 0b01000, 0b10011, 0b00011},
}};

Image in_color(const Image& image) {
  if (image.channels != 1) return image;
  Image color{.width = image.width, .height = image.height, .channels = 3, .pixels = {}};
  color.pixels.reserve(3 * image.pixels.size());
  for (const uint8_t gray : image.pixels) {
    color.pixels.insert(color.pixels.end(), 3, gray);
  }
  return color;
}

void fill(Image& image, Rectangle area, Color color) {
  for (int y = std::max(area.y1, 0); y < std::min(area.y2, image.height); ++y) {
    for (int x = std::max(area.x1, 0); x < std::min(area.x2, image.width); ++x) {
      uint8_t* const pixel = &image.pixels[(size_t{1} * y * image.width + x) * image.channels];
      pixel[0] = color.red;
      pixel[1] = color.green;
      pixel[2] = color.blue;
      if (image.channels == 4) pixel[3] = 255;
    }
  }
}

// A frame of the given thickness just inside the rectangle.
void draw_frame(Image& image, Rectangle area, int thickness, Color color) {
  fill(image, {area.x1, area.y1, area.x2, area.y1 + thickness}, color);
  fill(image, {area.x1, area.y2 - thickness, area.x2, area.y2}, color);
  fill(image, {area.x1, area.y1, area.x1 + thickness, area.y2}, color);
  fill(image, {area.x2 - thickness, area.y1, area.x2, area.y2}, color);
}

// Text of kGlyphNames with its upper left corner at (x, y), each pixel of a glyph `scale` pixels wide.
void draw_text(Image& image, std::string_view text, int x, int y, int scale, Color color) {
  for (const char c : text) {
    const auto& glyph = kGlyphs[kGlyphNames.find(c)];
    for (int row = 0; row < kGlyphHeight; ++row) {
      for (int column = 0; column < kGlyphWidth; ++column) {
        if (!(glyph[row] >> (kGlyphWidth - 1 - column) & 1)) continue;
        const int left = x + column * scale;
        const int top = y + row * scale;
        fill(image, {left, top, left + scale, top + scale}, color);
      }
    }
    x += (kGlyphWidth + 1) * scale;
  }
}

// The score in a tag that stands on the upper edge of the box, or hangs inside it at the top of the image.
void draw_tag(Image& image, Rectangle box, float score, int scale) {
  const std::string text = std::to_string(std::lround(100 * std::clamp(score, 0.0F, 1.0F))) + "%";
  const int width = (static_cast<int>(text.size()) * (kGlyphWidth + 1) + 3) * scale;
  const int height = (kGlyphHeight + 4) * scale;
  const int top = box.y1 >= height ? box.y1 - height : box.y1;
  const int left = std::clamp(box.x1, 0, std::max(image.width - width, 0));
  fill(image, {left, top, left + width, top + height}, kLine);
  draw_text(image, text, left + 2 * scale, top + 2 * scale, scale, kOutline);
}

// The nearest pixel boundary; far enough outside for every frame, but safe as an int, for absurd coordinates.
int to_pixel(float coordinate, int size) {
  return static_cast<int>(std::lround(std::clamp(coordinate, -1.0F, static_cast<float>(size) + 1)));
}

}  // namespace

Image annotate(const Image& image, std::span<const Detection> detections) {
  Image annotated = in_color(image);
  const int shorter_side = std::min(image.width, image.height);
  const int thickness = std::max(1, static_cast<int>(std::lround(shorter_side / 180.0)));
  const int outline = std::max(1, thickness / 3);
  const int text_scale = std::max(1, static_cast<int>(std::lround(shorter_side / 250.0)));

  for (size_t i = detections.size(); i-- > 0;) {
    const Box& box = detections[i].box;
    const float score = detections[i].score;
    const Rectangle area{to_pixel(box[0], image.width), to_pixel(box[1], image.height),
                         to_pixel(box[2], image.width), to_pixel(box[3], image.height)};
    draw_frame(annotated, area.grown(outline), thickness + 2 * outline, kOutline);
    draw_frame(annotated, area, thickness, kLine);
    draw_tag(annotated, area, score, text_scale);
  }
  return annotated;
}

}  // namespace lensbox
