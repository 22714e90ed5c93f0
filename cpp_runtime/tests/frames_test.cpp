#include "frames.h"

#include "commands.h"
#include "helpers.h"

namespace {

TEST(RawFormat, ComputesTheSizeOfAFrame) {
  EXPECT_EQ(parse_raw_format("640x480", "gray8").frame_size(), 640U * 480);
  EXPECT_EQ(parse_raw_format("640x480", "rgb8").frame_size(), 640U * 480 * 3);
  EXPECT_EQ(parse_raw_format("640x480", "nv12").frame_size(), 640U * 480 * 3 / 2);
  // There is a pair of chroma for 2 x 2 pixels, also for incomplete ones at the edges.
  EXPECT_EQ(parse_raw_format("3x5", "nv12").frame_size(), 3U * 5 + 2 * 2 * 3);
}

TEST(RawFormat, ReturnsViewsOfAFrame) {
  const uint8_t frame[27] = {};
  const lensbox::ImageView view = parse_raw_format("3x5", "nv12").view(frame);
  EXPECT_EQ(view.data, frame);
  EXPECT_EQ(view.stride, 3);
  EXPECT_EQ(view.chroma, frame + 15);
  EXPECT_EQ(view.chroma_stride, 4);
  EXPECT_EQ(parse_raw_format("3x5", "bgr8").view(frame).stride, 9);
}

TEST(RawFormat, RefusesInvalidText) {
  for (const char* size : {"", "x", "7", "7x", "x9", "0x9", "7x0", "-7x9", "7x9x3", "7 x 9", "+7x9", "7x9 ",
                           "9223372036854775807x2", "8193x8192"}) {
    expect_error<UsageError>([&] { parse_raw_format(size, "gray8"); }, {"--raw", "WIDTHxHEIGHT"});
  }
  expect_error<UsageError>([] { parse_raw_format("7x9", "GRAY8"); }, {"--raw", "nv12", "'GRAY8'"});
}

}  // namespace
