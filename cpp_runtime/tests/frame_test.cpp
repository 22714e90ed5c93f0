#include <algorithm>
#include <cmath>
#include <vector>

#include "commands.h"
#include "helpers.h"
#include "images/decoders.h"

namespace {

using lensbox::ImageView;
using lensbox::PixelFormat;

lensbox::Reading for_canvas(int64_t channels) {
  return {.canvas = {.height = 8, .width = 8, .channels = channels, .fill = 0}};
}

// Return the bytes of the photograph, row by row, [h, w, C].
std::vector<uint8_t> bytes_of(const ImageView& view, int64_t channels = 3) {
  const lensbox::Pixels pixels = lensbox::read_frame(view, for_canvas(channels)).pixels;
  EXPECT_EQ(pixels.stride, pixels.width * pixels.channels);
  return {pixels.data, pixels.row(pixels.height)};
}

// Return the exact colors for luma and chroma, by ITU-R BT.601.
std::array<double, 3> colors(int luma, int cb, int cr) {
  const double y = (luma - 16) / 219.0;
  const double red = y + 1.402 * (cr - 128) / 224.0;
  const double blue = y + 1.772 * (cb - 128) / 224.0;
  const double green = (y - 0.299 * red - 0.114 * blue) / 0.587;
  return {255 * red, 255 * green, 255 * blue};
}

double distance(uint8_t actual, double exact) {
  return std::abs(actual - std::clamp(exact, 0.0, 255.0));
}

TEST(PixelFormats, Nv12FollowsBt601) {
  std::vector<uint8_t> chroma(512);
  std::vector<uint8_t> luma(512);
  double greatest = 0;
  for (int y = 0; y < 256; ++y) {
    std::ranges::fill(luma, static_cast<uint8_t>(y));
    for (int cr = 0; cr < 256; cr += 17) {
      for (int cb = 0; cb < 256; ++cb) {
        chroma[2 * cb] = static_cast<uint8_t>(cb);
        chroma[2 * cb + 1] = static_cast<uint8_t>(cr);
      }
      const auto rgb = bytes_of({luma.data(), 512, 1, 512, PixelFormat::kNv12, chroma.data(), 512});
      for (int x = 0; x < 512; ++x) {
        const auto exact = colors(y, x / 2, cr);
        for (int c = 0; c < 3; ++c) {
          greatest = std::max(greatest, distance(rgb[3 * x + c], exact[c]));
        }
      }
    }
    const auto gray = bytes_of({luma.data(), 512, 1, 512, PixelFormat::kNv12, chroma.data(), 512}, 1);
    greatest = std::max(greatest, distance(gray[0], colors(y, 128, 128)[0]));
  }
  EXPECT_LT(greatest, 0.5003);
}

// 3 x 3 pixels, so that the last row and column have chroma of their own; rows are padded with 200.
TEST(PixelFormats, Nv12OfOddSizeTakesTheChromaOfTheBlock) {
  const std::vector<uint8_t> luma(3 * 7, 126);
  const std::vector<uint8_t> chroma{128, 128, 228, 128, 200, 128, 28, 128, 228, 28};
  const auto rgb = bytes_of({luma.data(), 3, 3, 7, PixelFormat::kNv12, chroma.data(), 5});
  const auto at = [&](int x, int y) {
    const uint8_t* const pixel = &rgb[static_cast<size_t>(3 * (3 * y + x))];
    return std::array<int, 3>{pixel[0], pixel[1], pixel[2]};
  };
  const std::array<int, 3> gray{128, 128, 128};
  EXPECT_EQ(at(0, 0), gray);
  EXPECT_EQ(at(1, 1), gray);
  EXPECT_EQ(at(2, 0), at(2, 1));
  EXPECT_EQ(at(2, 0)[2], 255);  // much blue
  EXPECT_EQ(at(0, 2), at(1, 2));
  EXPECT_EQ(at(0, 2)[0], 0);  // no red
  EXPECT_EQ(at(2, 2)[0], 255);
}

// 3 x 2 pixels, so that the last column has chroma of its own; rows are padded. The same colors as NV12.
TEST(PixelFormats, YuyvHasTheColorsOfNv12) {
  const std::vector<uint8_t> yuyv{20, 90, 130, 240, 235, 30, 99, 100, 7,
                                  16, 90, 200, 240, 40,  30, 99, 100, 7};
  const std::vector<uint8_t> luma{20, 130, 235, 16, 200, 40}, chroma{90, 240, 30, 100};
  for (const int64_t channels : {1, 3}) {
    EXPECT_EQ(bytes_of({yuyv.data(), 3, 2, 9, PixelFormat::kYuyv}, channels),
              bytes_of({luma.data(), 3, 2, 3, PixelFormat::kNv12, chroma.data(), 4}, channels));
  }
}

TEST(ReadFrame, CopiesTheFrame) {
  std::vector<uint8_t> bytes{1, 2, 3, 4, 5, 6, 99, 7, 8, 9, 10, 11, 12, 99};
  const auto rgb = lensbox::read_frame({bytes.data(), 2, 2, 7, PixelFormat::kRgb8}, for_canvas(3));
  std::vector<uint8_t> copy(bytes_of({bytes.data(), 5, 2, 7, PixelFormat::kGray8}));
  std::ranges::fill(bytes, 0);
  EXPECT_EQ(rgb.width, 2);
  EXPECT_EQ(rgb.height, 2);
  EXPECT_EQ(rgb.window, (std::array<float, 4>{0, 0, 2, 2}));
  EXPECT_TRUE(std::equal(rgb.pixels.data, rgb.pixels.row(2),
                         std::vector<uint8_t>{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}.begin()));
  EXPECT_EQ(copy, (std::vector<uint8_t>{1, 2, 3, 4, 5, 7, 8, 9, 10, 11}));
}

TEST(ReadFrame, RefusesViewsThatCannotBeRead) {
  const std::vector<uint8_t> bytes(100);
  const uint8_t* const data = bytes.data();
  constexpr auto kRgb = PixelFormat::kRgb8, kNv12 = PixelFormat::kNv12;
  const std::pair<ImageView, const char*> cases[] = {
      {{nullptr, 4, 3, 12, kRgb}, "data must not be null"},
      {{data, 0, 3, 12, kRgb}, "width and height must be at least 1, got 0 x 3"},
      {{data, 4, -1, 12, kRgb}, "at least 1, got 4 x -1"},
      {{data, INT64_MAX, INT64_MAX, 12, kRgb}, "the image must have sides of at most 16777216 pixels"},
      {{data, 1 << 24, 1 << 24, 12, kRgb}, "the image must have at most 67108864 pixels"},
      {{data, 4, 3, 11, kRgb}, "stride of data must be from 12, the bytes of a row, to 2147483647, got 11"},
      {{data, 4, 3, -12, kRgb}, "got -12"},
      {{data, 4, 3, INT64_MAX, kRgb}, "got 9223372036854775807"},
      {{data, 4, 3, 12, PixelFormat{9}}, "format must be one of PixelFormat, got 9"},
      {{data, 4, 3, 12, kNv12, nullptr, 4}, "chroma must not be null"},
      {{data, 4, 3, 12, kNv12, data, 3},
       "stride of chroma must be from 4, the bytes of a row, to 2147483647, got 3"},
      {{data, 5, 3, 12, kNv12, data, 4}, "stride of chroma must be from 6"},
      {{data, 5, 3, 11, PixelFormat::kYuyv}, "stride of data must be from 12"},
  };
  for (const auto& [view, reason] : cases) {
    expect_error<lensbox::InputError>([&, &view = view] { lensbox::read_frame(view, for_canvas(3)); },
                                      {reason});
  }
}

// --- the formats of frames on stdin ---

TEST(RawFormat, HasChromaForIncompletePairsOfPixels) {
  const uint8_t frame[27] = {};
  const RawFormat format = parse_raw_format("3x5", "nv12");
  EXPECT_EQ(format.frame_size(), 3U * 5 + 2 * 2 * 3);
  EXPECT_EQ(format.view(frame).chroma, frame + 15);
  EXPECT_EQ(format.view(frame).chroma_stride, 4);
}

TEST(RawFormat, YuyvHasFourBytesForTwoPixels) {
  EXPECT_EQ(parse_raw_format("4x2", "yuyv").frame_size(), 16U);
  EXPECT_EQ(parse_raw_format("3x2", "yuyv").frame_size(), 16U);
}

TEST(RawFormat, RefusesInvalidText) {
  for (const char* size : {"", "x", "7", "7x", "x9", "0x9", "7x0", "-7x9", "7x9x3", "7 x 9", "+7x9", "7x9 ",
                           "9223372036854775807x2", "8193x8192"}) {
    expect_error<UsageError>([&] { parse_raw_format(size, "gray8"); }, {"--raw", "WIDTHxHEIGHT"});
  }
  expect_error<UsageError>([] { parse_raw_format("7x9", "GRAY8"); }, {"--raw", "nv12", "'GRAY8'"});
}

}  // namespace
