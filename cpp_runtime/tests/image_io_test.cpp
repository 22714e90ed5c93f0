#include <ATen/ATen.h>
#include <lensbox/error.h>
#include <lensbox/image_io.h>

#include "expect_error.h"
#include "jpeg_structure.h"
#include "temporary_folder.h"

namespace {

namespace fs = std::filesystem;
using lensbox::Image;

class ImageIo : public TemporaryFolder {
 protected:
  static void expect_refused(const fs::path& path, std::initializer_list<const char*> parts) {
    expect_error<lensbox::InputError>([&] { lensbox::read_image(path); }, parts);
  }
};

Image gradient(int width, int height, int channels) {
  Image image{width, height, channels, {}};
  for (int i = 0; i < width * height * channels; ++i) {
    image.pixels.push_back(static_cast<uint8_t>(i * 7));
  }
  return image;
}

std::string bytes_of(const fs::path& path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
}

TEST_F(ImageIo, PngRoundTrip) {
  for (const int channels : {1, 3, 4}) {
    const Image image = gradient(13, 7, channels);
    lensbox::write_png(folder_ / "x.png", image);
    const Image read = lensbox::read_image(folder_ / "x.png");
    EXPECT_EQ(read.width, 13);
    EXPECT_EQ(read.height, 7);
    EXPECT_EQ(read.channels, channels);
    EXPECT_EQ(read.pixels, image.pixels);
  }
}

TEST_F(ImageIo, GrayWithAlphaLosesTheAlpha) {
  lensbox::write_png(folder_ / "x.png", Image{2, 1, 2, {10, 255, 20, 128}});
  const Image read = lensbox::read_image(folder_ / "x.png");
  EXPECT_EQ(read.channels, 1);
  EXPECT_EQ(read.pixels, (std::vector<uint8_t>{10, 20}));
}

TEST_F(ImageIo, TensorsAreChannelsFirst) {
  const at::Tensor tensor = lensbox::to_tensor(Image{2, 1, 3, {1, 2, 3, 4, 5, 6}});
  EXPECT_TRUE(at::equal(tensor, at::tensor({1, 4, 2, 5, 3, 6}, at::kByte).reshape({3, 1, 2})));
  EXPECT_TRUE(tensor.is_contiguous());
}

TEST_F(ImageIo, RefusesAnAbsentFile) {
  expect_refused(folder_ / "no.png", {"no.png", "no such file"});
}

TEST_F(ImageIo, RefusesWhatIsNoFile) {
  expect_refused(folder_, {"not a file"});
  expect_refused("/dev/zero", {"not a file"});
}

TEST_F(ImageIo, RefusesAnEmptyFile) {
  expect_refused(write("x.png", ""), {"x.png", "empty"});
}

TEST_F(ImageIo, RefusesOtherFormats) {
  expect_refused(write("x.png", "GIF89a\1\0\1\0"), {"x.png", "neither"});
}

TEST_F(ImageIo, RefusesEveryTruncationOfAPng) {
  lensbox::write_png(folder_ / "x.png", gradient(40, 30, 3));
  const std::string bytes = bytes_of(folder_ / "x.png");
  const size_t data_end = bytes.size() - 16;  // the checksum of the data and the end chunk
  for (size_t length = 1; length < data_end; length += 11) {
    expect_refused(write("short.png", bytes.substr(0, length)), {"short.png"});
  }
}

TEST_F(ImageIo, RefusesAnAbsurdSizeBeforeAllocatingIt) {
  lensbox::write_png(folder_ / "x.png", gradient(2, 2, 3));
  std::string bytes = bytes_of(folder_ / "x.png");
  bytes.replace(16, 8, std::string("\0\0\x20\0\0\0\x20\1", 8));  // width and height in the header chunk
  expect_refused(write("large.png", bytes), {"large.png", "67108864", "8192 x 8193"});
  bytes.replace(16, 8, std::string("\0\xff\xff\xff\0\xff\xff\xff", 8));
  expect_refused(write("absurd.png", bytes), {"absurd.png", "too large"});
}

TEST_F(ImageIo, SaysThatAFileCannotBeWritten) {
  expect_error<lensbox::InputError>([&] { lensbox::write_png(folder_ / "no" / "x.png", gradient(2, 2, 3)); },
                                    {"x.png", "cannot be written"});
}

bool is_complete(std::initializer_list<uint8_t> bytes) {
  return lensbox::jpeg_is_complete(std::vector<uint8_t>(bytes));
}

TEST(JpegStructure, EndsWithTheEndMarker) {
  EXPECT_TRUE(is_complete({0xFF, 0xD8, 0xFF, 0xDA, 0, 4, 1, 2, 9, 9, 0xFF, 0xD9}));
  EXPECT_FALSE(is_complete({0xFF, 0xD8, 0xFF, 0xDA, 0, 4, 1, 2, 9, 9}));
  EXPECT_FALSE(is_complete({0xFF, 0xD8, 0xFF, 0xDA, 0, 4, 1, 2, 9, 9, 0xFF}));
}

TEST(JpegStructure, AnEndInsideASegmentIsNotTheEnd) {
  EXPECT_FALSE(is_complete({0xFF, 0xD8, 0xFF, 0xE1, 0, 4, 0xFF, 0xD9, 0xFF, 0xDA, 0, 2, 9}));
}

TEST(JpegStructure, PassesOverStuffedBytesRestartsAndFill) {
  EXPECT_TRUE(is_complete({0xFF, 0xD8, 0xFF, 0xDA, 0, 2, 0xFF, 0, 9, 0xFF, 0xD3, 9, 0xFF, 0xFF, 0xD9}));
}

TEST(JpegStructure, ASegmentBeyondTheEndOfTheFile) {
  EXPECT_FALSE(is_complete({0xFF, 0xD8, 0xFF, 0xE1, 0xFF, 0xFF, 0xFF, 0xD9}));
  EXPECT_FALSE(is_complete({0xFF, 0xD8, 0xFF, 0xE1}));
  EXPECT_FALSE(is_complete({}));
}

}  // namespace
