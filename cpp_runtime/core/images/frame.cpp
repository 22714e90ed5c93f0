#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <vector>

#include "images/decoders.h"

namespace lensbox {
namespace {

// ITU-R BT.601-7, sections 2.5.1 to 2.5.3: luma is the weighted sum of red, green and blue; the two of chroma
// are the differences of blue and of red to it, scaled to -0.5..0.5; luma spreads over 219 steps from 16 on
// and chroma over 224 around 128. Solved for the colors, in 255 steps:
//   y = 255/219 (Y - 16)
//   R = y + 255/224 * 2 (1 - kRed) (Cr - 128)
//   B = y + 255/224 * 2 (1 - kBlue) (Cb - 128)
//   G = (y - kRed R - kBlue B) / kGreen
// Rounded half up, and clamped to 0..255. In integers, so that every machine gives the same pixels.
constexpr double kRed = 0.299;
constexpr double kGreen = 0.587;
constexpr double kBlue = 0.114;

constexpr int kBits = 20;  // of the fraction: a color is off by less than 0.0003 before it is rounded

constexpr int32_t fixed(double value) {
  return static_cast<int32_t>(value * (1 << kBits) + 0.5);
}

constexpr int32_t kLuma = fixed(255.0 / 219);
constexpr int32_t kCrToRed = fixed(255.0 / 224 * 2 * (1 - kRed));
constexpr int32_t kCbToBlue = fixed(255.0 / 224 * 2 * (1 - kBlue));
constexpr int32_t kCrToGreen = fixed(255.0 / 224 * 2 * (1 - kRed) * kRed / kGreen);
constexpr int32_t kCbToGreen = fixed(255.0 / 224 * 2 * (1 - kBlue) * kBlue / kGreen);

int32_t scaled_luma(uint8_t luma) {
  return kLuma * (luma - 16) + (1 << (kBits - 1));  // with the half that rounds
}

uint8_t to_byte(int32_t value) {
  return static_cast<uint8_t>(std::clamp(value >> kBits, 0, 255));
}

// The place of luma and chroma in a row of bytes: luma of each pixel, and Cb and Cr of each pair of pixels.
struct Nv12 {
  static constexpr size_t kLuma = 1, kPair = 2, kCr = 1;
  static const uint8_t* chroma(const ImageView& view, int64_t y) {
    return view.chroma + y / 2 * view.chroma_stride;
  }
};
struct Yuyv {
  static constexpr size_t kLuma = 2, kPair = 4, kCr = 2;
  static const uint8_t* chroma(const ImageView& view, int64_t y) { return view.data + y * view.stride + 1; }
};

// Compute the terms that a row of chroma adds to red, green and blue of its pixels.
template <class Layout>
void shifts_of_chroma(const uint8_t* chroma, std::array<std::vector<int32_t>, 3>& shifts) {
  auto& [red, green, blue] = shifts;
  for (size_t x = 0; x + 1 < red.size(); x += 2, chroma += Layout::kPair) {
    const int32_t cb = chroma[0] - 128;
    const int32_t cr = chroma[Layout::kCr] - 128;
    red[x] = red[x + 1] = kCrToRed * cr;
    green[x] = green[x + 1] = -kCbToGreen * cb - kCrToGreen * cr;
    blue[x] = blue[x + 1] = kCbToBlue * cb;
  }
}

const uint8_t* row_of(const ImageView& view, int64_t y) {
  return view.data + y * view.stride;
}

void check_plane(const std::string& argument, const uint8_t* data, int64_t stride, int64_t row_bytes) {
  constexpr int64_t kMaxStride = INT32_MAX;
  if (data == nullptr) throw InputError(argument + " must not be null");
  if (stride >= row_bytes && stride <= kMaxStride) return;
  throw InputError("the stride of " + argument + " must be from " + std::to_string(row_bytes) +
                   ", the bytes of a row, to " + std::to_string(kMaxStride) + ", got " +
                   std::to_string(stride));
}

Pixels copied(const ImageView& view, int64_t channels) {
  Pixels image = new_pixels(view.width, view.height, channels);
  for (int64_t y = 0; y < view.height; ++y) {
    std::memcpy(image.row(y), row_of(view, y), static_cast<size_t>(image.stride));
  }
  return image;
}

Pixels bgr8_to_rgb(const ImageView& view) {
  Pixels image = new_pixels(view.width, view.height, 3);
  for (int64_t y = 0; y < view.height; ++y) {
    const uint8_t* from = row_of(view, y);
    uint8_t* to = image.row(y);
    for (int64_t x = 0; x < view.width; ++x, from += 3, to += 3) {
      to[0] = from[2];
      to[1] = from[1];
      to[2] = from[0];
    }
  }
  return image;
}

// Convert one row and one color at a time, in loops without branches that the compiler can vectorize.
template <class Layout>
Pixels luma_and_chroma_to_rgb(const ImageView& view) {
  Pixels image = new_pixels(view.width, view.height, 3);
  const auto width = static_cast<size_t>(view.width);
  std::vector<int32_t> base(width);
  std::array<std::vector<int32_t>, 3> shifts;
  shifts.fill(std::vector<int32_t>(width + 1));
  const uint8_t* known = nullptr;  // the chroma in `shifts`
  for (int64_t y = 0; y < view.height; ++y) {
    uint8_t* const row = image.row(y);
    const uint8_t* const chroma = Layout::chroma(view, y);
    if (chroma != known) shifts_of_chroma<Layout>(chroma, shifts);
    known = chroma;
    const uint8_t* const luma = row_of(view, y);
    for (size_t x = 0; x < width; ++x) {
      base[x] = scaled_luma(luma[Layout::kLuma * x]);
    }
    for (size_t c = 0; c < 3; ++c) {
      for (size_t x = 0; x < width; ++x)
        row[3 * x + c] = to_byte(base[x] + shifts[c][x]);
    }
  }
  return image;
}

// The gray value of the colors that luma_and_chroma_to_rgb returns is y, unless a color was clamped.
template <class Layout>
Pixels luma_to_gray(const ImageView& view) {
  Pixels image = new_pixels(view.width, view.height, 1);
  for (int64_t y = 0; y < view.height; ++y) {
    uint8_t* const row = image.row(y);
    const uint8_t* const luma = row_of(view, y);
    for (int64_t x = 0; x < view.width; ++x) {
      row[x] = to_byte(scaled_luma(luma[Layout::kLuma * x]));
    }
  }
  return image;
}

template <class Layout>
Pixels converted(const ImageView& view, const Reading& reading) {
  return reading.canvas.channels == 1 ? luma_to_gray<Layout>(view) : luma_and_chroma_to_rgb<Layout>(view);
}

// Throw InputError unless the view can be read.
Pixels pixels_of(const ImageView& view, const Reading& reading) {
  if (view.width < 1 || view.height < 1) {
    throw InputError("width and height must be at least 1, got " + std::to_string(view.width) + " x " +
                     std::to_string(view.height));
  }
  check_size(view.width, view.height);
  const auto format = PixelFormat{view.format};
  check_plane("data", view.data, view.stride, row_bytes(format, view.width));
  switch (format) {
    case PixelFormat::kGray8:
      return copied(view, 1);
    case PixelFormat::kRgb8:
      return copied(view, 3);
    case PixelFormat::kBgr8:
      return bgr8_to_rgb(view);
    case PixelFormat::kNv12:
      check_plane("chroma", view.chroma, view.chroma_stride, 2 * pairs_of(view.width));
      return converted<Nv12>(view, reading);
    case PixelFormat::kYuyv:
      return converted<Yuyv>(view, reading);
  }
  throw InputError("format must be one of PixelFormat, got " + std::to_string(static_cast<int>(format)));
}

}  // namespace

int64_t row_bytes(PixelFormat format, int64_t width) {
  if (format == PixelFormat::kYuyv) return 4 * pairs_of(width);
  return format == PixelFormat::kRgb8 || format == PixelFormat::kBgr8 ? 3 * width : width;
}

DecodedPhoto read_frame(const ImageView& view, const Reading& reading) {
  return whole_photo(pixels_of(view, reading));
}

}  // namespace lensbox
