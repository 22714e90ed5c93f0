#include <ATen/ATen.h>
#include <lensbox/error.h>
#include <lensbox/image_io.h>
#include <lensbox/torch/image_tensor.h>
#include <unistd.h>
#include <zlib.h>

#include "expect_error.h"
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

// A PNG file with other width and height, and the checksum of its header chunk for them.
std::string with_size(std::string png, const std::string& width_and_height) {
  png.replace(16, 8, width_and_height);
  const uLong checksum = crc32(0, reinterpret_cast<const Bytef*>(&png[12]), 17);
  for (int i = 0; i < 4; ++i) {
    png[29 + i] = static_cast<char>(checksum >> (24 - 8 * i));
  }
  return png;
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

TEST_F(ImageIo, TensorsAreChannelsFirstInTheImagesOwnMemory) {
  Image image{2, 1, 3, {1, 2, 3, 4, 5, 6}};
  const uint8_t* const memory = image.pixels.data();
  const at::Tensor tensor = lensbox::to_tensor(std::move(image));
  EXPECT_TRUE(at::equal(tensor, at::tensor({1, 4, 2, 5, 3, 6}, at::kByte).reshape({3, 1, 2})));
  EXPECT_EQ(tensor.const_data_ptr(), memory);
  EXPECT_EQ(tensor.strides(), (at::IntArrayRef{1, 6, 3}));
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
  for (size_t length = 1; length < bytes.size(); ++length) {
    expect_refused(write("short.png", bytes.substr(0, length)), {"short.png"});
  }
}

TEST_F(ImageIo, RefusesAnAbsurdSizeBeforeAllocatingIt) {
  lensbox::write_png(folder_ / "x.png", gradient(2, 2, 3));
  const std::string bytes = bytes_of(folder_ / "x.png");
  expect_refused(write("large.png", with_size(bytes, {"\0\0\x20\0\0\0\x20\1", 8})),
                 {"large.png", "67108864", "8192 x 8193"});
  expect_refused(write("absurd.png", with_size(bytes, {"\x7f\xff\xff\xff\x7f\xff\xff\xff", 8})),
                 {"absurd.png", "67108864", "2147483647 x 2147483647"});
}

TEST_F(ImageIo, WritesOverAFileAndLeavesNothingElse) {
  lensbox::write_png(folder_ / "x.png", gradient(2, 2, 3));
  lensbox::write_png(folder_ / "x.png", gradient(13, 7, 1));
  EXPECT_EQ(lensbox::read_image(folder_ / "x.png").width, 13);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), {}), 1);
}

TEST_F(ImageIo, WritesWhereAProcessOfThisNumberWasKilledWhileItWrote) {
  const std::string left = "x.png." + std::to_string(getpid()) + ".partial";
  write(left, "half a file");
  lensbox::write_png(folder_ / "x.png", gradient(2, 2, 3));
  EXPECT_EQ(lensbox::read_image(folder_ / "x.png").width, 2);
  EXPECT_EQ(bytes_of(folder_ / left), "half a file");
}

TEST_F(ImageIo, RefusesImagesWhosePixelsAreNotThere) {
  Image short_by_one = gradient(13, 7, 3);
  short_by_one.pixels.pop_back();
  const auto refused = [&](const Image& image, const char* rule) {
    expect_error<lensbox::InputError>([&] { lensbox::write_png(folder_ / "x.png", image); }, {"image", rule});
    expect_error<lensbox::InputError>([&] { lensbox::to_tensor(image); }, {"image", rule});
  };
  refused(short_by_one, "pixels must be 13 x 7 x 3 = 273 bytes, got 272");
  refused({2, 2, 3, {}}, "got 0");
  refused({1 << 20, 1 << 20, 4, {}}, "= 4398046511104 bytes, got 0");
  refused({0, 2, 3, {}}, "width and height must be at least 1, got 0 x 2");
  refused({2, -1, 3, {}}, "got 2 x -1");
  refused({2, 1, 0, {}}, "channels must be");
  refused({2, 1, 5, std::vector<uint8_t>(10)}, "got 5");
  EXPECT_FALSE(fs::exists(folder_ / "x.png"));
}

TEST_F(ImageIo, AFailedWriteLeavesNothing) {
  fs::create_directory(folder_ / "x.png");  // cannot be replaced by a file
  expect_error<lensbox::InputError>([&] { lensbox::write_png(folder_ / "x.png", gradient(2, 2, 3)); },
                                    {"x.png", "cannot be written"});
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), {}), 1);
}

TEST_F(ImageIo, SaysThatAFileCannotBeWritten) {
  expect_error<lensbox::InputError>([&] { lensbox::write_png(folder_ / "no" / "x.png", gradient(2, 2, 3)); },
                                    {"x.png", "cannot be written"});
}

}  // namespace
