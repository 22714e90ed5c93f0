#include <lensbox/annotate.h>
#include <lensbox/error.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "glyphs.h"
#include "new_image.h"

namespace lensbox {
namespace {

struct Color {
  uint8_t red, green, blue;
};

// Of the classes in turn: light ones, so that dark letters can be read on them.
constexpr std::array<Color, 12> kColors{{{57, 255, 120},
                                         {255, 176, 59},
                                         {96, 205, 255},
                                         {255, 138, 222},
                                         {245, 255, 77},
                                         {190, 160, 255},
                                         {255, 128, 110},
                                         {64, 240, 225},
                                         {255, 214, 190},
                                         {170, 225, 110},
                                         {200, 215, 255},
                                         {225, 190, 90}}};
// Beside lines, and of letters: seen on light and dark backgrounds.
constexpr Color kOutline{10, 40, 20};

// Pixels x1 <= x < x2, y1 <= y < y2.
struct Rectangle {
  int x1, y1, x2, y2;

  Rectangle grown(int by) const { return {x1 - by, y1 - by, x2 + by, y2 + by}; }
};

// What grows with the image, in pixels.
struct Sizes {
  int thickness;  // of lines
  int outline;    // on either side of them
  int text;       // of a glyph's pixel

  explicit Sizes(int shorter_side)
      : thickness(std::max(1, static_cast<int>(std::lround(shorter_side / 180.0)))),
        outline(std::max(1, thickness / 3)),
        text(std::max(1, static_cast<int>(std::lround(shorter_side / 250.0)))) {}
};

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

// A disc around a point; of one far outside, nothing is seen.
void fill_disc(Image& image, float x, float y, int radius, Color color) {
  const auto reach = static_cast<float>(radius);
  const bool is_near = x >= -reach && y >= -reach && x <= static_cast<float>(image.width) + reach &&
                       y <= static_cast<float>(image.height) + reach;
  if (!is_near) return;  // nor is NaN
  const int left = static_cast<int>(std::lround(x));
  const int top = static_cast<int>(std::lround(y));
  for (int row = -radius; row <= radius; ++row) {
    const auto half = static_cast<int>(std::sqrt(radius * radius - row * row));
    fill(image, {left - half, top + row, left + half + 1, top + row + 1}, color);
  }
}

// The upper left corner is at (x, y), and each pixel of a glyph `scale` pixels wide.
void draw_text(Image& image, std::span<const Glyph> text, int x, int y, int scale, Color color) {
  for (const Glyph& glyph : text) {
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

// How wide a tag with so many characters is.
int tag_width(size_t characters, int scale) {
  return (static_cast<int>(characters) * (kGlyphWidth + 1) + 3) * scale;
}

// The class and the score in percent; of a name that is wider than the image, as much as fits beside the
// score.
std::vector<Glyph> tag_text(std::string_view name, float score, int image_width, int scale) {
  const std::vector<Glyph> percent =
      glyphs_of(std::to_string(std::lround(100 * std::clamp(score, 0.0F, 1.0F))) + "%");
  std::vector<Glyph> text = glyphs_of(name);
  while (!text.empty() && tag_width(text.size() + 1 + percent.size(), scale) > image_width) {
    text.pop_back();
  }
  if (!text.empty()) text.push_back(glyphs_of(" ")[0]);
  text.insert(text.end(), percent.begin(), percent.end());
  return text;
}

// A tag that stands on the upper edge of the box, or hangs inside it at the top of the image.
void draw_tag(Image& image, Rectangle box, std::span<const Glyph> text, int scale, Color color) {
  const int width = tag_width(text.size(), scale);
  const int height = (kGlyphHeight + 4) * scale;
  const int top = box.y1 >= height ? box.y1 - height : box.y1;
  const int left = std::clamp(box.x1, 0, std::max(image.width - width, 0));
  fill(image, {left, top, left + width, top + height}, color);
  draw_text(image, text, left + 2 * scale, top + 2 * scale, scale, kOutline);
}

void draw_points(Image& image, const ExtraValues& values, const Sizes& sizes, Color color) {
  const auto* const points = std::get_if<std::vector<float>>(&values);
  if (points == nullptr) return;
  const int radius = sizes.thickness + 1;
  for (size_t i = 0; i + 1 < points->size(); i += 2) {
    fill_disc(image, (*points)[i], (*points)[i + 1], radius + sizes.outline, kOutline);
    fill_disc(image, (*points)[i], (*points)[i + 1], radius, color);
  }
}

// The nearest pixel boundary; far enough outside for every frame, but safe as an int, for absurd coordinates.
int to_pixel(float coordinate, int size) {
  return static_cast<int>(std::lround(std::clamp(coordinate, -1.0F, static_cast<float>(size) + 1)));
}

}  // namespace

Image annotate(const Image& image, std::span<const Detection> detections,
               std::span<const std::string> classes, std::span<const Extra> extras) {
  check_image(image);
  if (image.channels == 2) throw InputError("image: channels must be 1, 3 or 4, got 2");
  Image annotated = in_color(image);
  const Sizes sizes(std::min(image.width, image.height));
  for (size_t i = detections.size(); i-- > 0;) {
    const Detection& detection = detections[i];
    const Box& box = detection.box;
    const Rectangle area{to_pixel(box[0], image.width), to_pixel(box[1], image.height),
                         to_pixel(box[2], image.width), to_pixel(box[3], image.height)};
    const auto label = static_cast<size_t>(detection.label);
    const Color color = kColors[label % kColors.size()];
    const std::string_view name = label < classes.size() ? classes[label] : std::string_view();
    draw_frame(annotated, area.grown(sizes.outline), sizes.thickness + 2 * sizes.outline, kOutline);
    draw_frame(annotated, area, sizes.thickness, color);
    for (size_t e = 0; e < std::min(extras.size(), detection.extras.size()); ++e) {
      if (extras[e].kind == ExtraKind::kPoints) {
        draw_points(annotated, detection.extras[e], sizes, color);
      }
    }
    draw_tag(annotated, area, tag_text(name, detection.score, image.width, sizes.text), sizes.text, color);
  }
  return annotated;
}

}  // namespace lensbox
