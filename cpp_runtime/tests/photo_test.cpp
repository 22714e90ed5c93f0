#include <ATen/ATen.h>
#include <lensbox/torch/tensors.h>

#include "helpers.h"

namespace {

using lensbox::Reading;

const Reading kReading{.canvas = {.height = 8, .width = 8, .channels = 3, .fill = 0}, .jpeg_oversampling = 0};

class ReadPhoto : public TemporaryFolder {
 protected:
  static void expect_refused(const std::filesystem::path& path, std::initializer_list<const char*> parts) {
    expect_error<lensbox::InputError>([&] { lensbox::read_photo(path, kReading); }, parts);
  }
};

TEST_F(ReadPhoto, ReadsGrayRgbAndRgba) {
  for (const int64_t channels : {1, 3, 4}) {
    const auto path = write("x.png", png_file(13, 7, static_cast<uint32_t>(channels)));
    const lensbox::Photo photo = lensbox::read_photo(path, kReading);
    EXPECT_EQ(photo.width, 13);
    EXPECT_EQ(photo.height, 7);
    const at::Tensor expected = (at::arange(13 * 7 * channels) * 7).to(at::kByte).view({7, 13, channels});
    EXPECT_TRUE(at::equal(photo.pixels, expected.permute({2, 0, 1})));
  }
}

TEST_F(ReadPhoto, DropsAlphaOfGray) {
  const lensbox::Photo photo = lensbox::read_photo(write("x.png", png_file(2, 1, 2)), kReading);
  EXPECT_TRUE(at::equal(photo.pixels, at::tensor({0, 14}, at::kByte).view({1, 1, 2})));
}

TEST_F(ReadPhoto, RefusesOtherFiles) {
  expect_refused(folder_ / "no.png", {"no.png", "no such file"});
  expect_refused(folder_, {"not a file"});
  expect_refused("/dev/zero", {"not a file"});
  expect_refused(write("x.png", ""), {"x.png", "empty"});
  expect_refused(write("x.png", "GIF89a\1\0\1\0"), {"x.png", "neither"});
}

TEST_F(ReadPhoto, RefusesEveryTruncation) {
  const std::string png = png_file(9, 5, 3);
  const auto* const bytes = reinterpret_cast<const uint8_t*>(png.data());
  for (size_t length = 0; length < png.size(); ++length) {
    expect_error<lensbox::InputError>([&] { lensbox::read_photo(std::span(bytes, length), kReading); },
                                      {"the image data: "});
  }
}

}  // namespace
