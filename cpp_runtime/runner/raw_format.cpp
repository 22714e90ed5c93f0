#include "raw_format.h"

#include <lensbox/image_io.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <string_view>
#include <utility>

#include "usage_error.h"

namespace {

using lensbox::PixelFormat;

constexpr std::array<std::pair<std::string_view, PixelFormat>, 4> kNames{{{"gray8", PixelFormat::kGray8},
                                                                          {"rgb8", PixelFormat::kRgb8},
                                                                          {"bgr8", PixelFormat::kBgr8},
                                                                          {"nv12", PixelFormat::kNv12}}};

// Nothing unless all of the text is a number of at least 1.
int64_t parse_side(std::string_view text) {
  int64_t side = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), side);
  return error == std::errc() && end == text.data() + text.size() && side >= 1 ? side : 0;
}

}  // namespace

size_t RawFormat::frame_size() const {
  const int64_t planes = stride() * height;
  return static_cast<size_t>(pixels == PixelFormat::kNv12 ? planes + chroma_stride() * ((height + 1) / 2)
                                                          : planes);
}

lensbox::ImageView RawFormat::view(const uint8_t* frame) const {
  lensbox::ImageView view{
      .data = frame, .width = width, .height = height, .stride = stride(), .format = pixels};
  if (pixels == PixelFormat::kNv12) {
    view.chroma = frame + stride() * height;
    view.chroma_stride = chroma_stride();
  }
  return view;
}

int64_t RawFormat::stride() const {
  return pixels == PixelFormat::kRgb8 || pixels == PixelFormat::kBgr8 ? 3 * width : width;
}

int64_t RawFormat::chroma_stride() const {
  return 2 * ((width + 1) / 2);  // a pair of bytes for each two columns
}

std::string RawFormat::text() const {
  const auto* const name =
      std::ranges::find(kNames, pixels, &std::pair<std::string_view, PixelFormat>::second);
  return std::to_string(width) + "x" + std::to_string(height) + " " + std::string(name->first);
}

RawFormat parse_raw_format(const std::string& size, const std::string& pixels) {
  const auto* const name =
      std::ranges::find(kNames, pixels, &std::pair<std::string_view, PixelFormat>::first);
  if (name == kNames.end()) {
    throw UsageError("--raw: the format of pixels must be gray8, rgb8, bgr8 or nv12, got '" + pixels + "'");
  }
  const std::string_view text = size;
  const size_t x = std::min(text.find('x'), text.size());
  const RawFormat format{.width = parse_side(text.substr(0, x)),
                         .height = parse_side(text.substr(std::min(x + 1, text.size()))),
                         .pixels = name->second};
  if (format.width == 0 || format.height == 0 || format.width > lensbox::kMaxImagePixels / format.height) {
    throw UsageError("--raw: the size must be WIDTHxHEIGHT, both at least 1, of at most " +
                     std::to_string(lensbox::kMaxImagePixels) + " pixels, got '" + size + "'");
  }
  return format;
}
