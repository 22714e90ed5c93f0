#include "detect/gpu_jpeg.h"

#include <ATen/ATen.h>
#include <lensbox/torch/tensors.h>
#include <torch/library.h>

#include <cstdio>
// clang-format off: jpeglib.h needs cstdio.
#include <jpeglib.h>
// clang-format on

#include "helpers.h"

namespace {

using lensbox::Decode;
using lensbox::GpuJpegDecoder;

const c10::Device kCpu(c10::kCPU);
constexpr const char* kOps = "lensbox_jpeg_test";

// Return a gray JPEG file; with an EXIF orientation if one is given.
std::string jpeg_file(JDIMENSION width, JDIMENSION height, char orientation = 0) {
  jpeg_compress_struct info{};
  jpeg_error_mgr errors{};
  info.err = jpeg_std_error(&errors);
  jpeg_create_compress(&info);
  unsigned char* memory = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&info, &memory, &size);
  info.image_width = width;
  info.image_height = height;
  info.input_components = 1;
  info.in_color_space = JCS_GRAYSCALE;
  jpeg_set_defaults(&info);
  jpeg_start_compress(&info, TRUE);
  if (orientation != 0) {
    std::string exif("Exif\0\0MM\0\x2a\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\0\0\0\0\0\0\0", 32);
    exif[25] = orientation;
    jpeg_write_marker(&info, JPEG_APP0 + 1, reinterpret_cast<const JOCTET*>(exif.data()),
                      static_cast<unsigned>(exif.size()));
  }
  std::vector<JSAMPLE> row(width, 100);
  JSAMPROW rows = row.data();
  for (JDIMENSION y = 0; y < height; ++y) {
    jpeg_write_scanlines(&info, &rows, 1);
  }
  jpeg_finish_compress(&info);
  std::string file(reinterpret_cast<const char*>(memory), size);
  jpeg_destroy_compress(&info);
  free(memory);
  return file;
}

bool accepts(const at::Tensor& file) {
  return file.size(0) > 100;
}

// Stand in for the GPU: planes of 0 to 5, and none for the last file.
template <int64_t kChannels>
std::vector<at::Tensor> decode(const std::vector<at::Tensor>& files, at::Device device) {
  const auto plane = at::arange(6, at::TensorOptions().dtype(at::kByte).device(device)).view({1, 2, 3});
  std::vector<at::Tensor> planes(files.size(), plane.expand({kChannels, 2, 3}));
  planes.back() = at::empty({0}, at::kByte);
  return planes;
}

class GpuJpegTest : public TemporaryFolder {
 protected:
  void SetUp() override {
    TemporaryFolder::SetUp();
    ops_.def("accepts(Tensor file) -> bool", accepts);
    ops_.def("decode_luma(Tensor[] files, Device device) -> Tensor[]", decode<1>);
    ops_.def("decode_rgb(Tensor[] files, Device device) -> Tensor[]", decode<3>);
  }

  lensbox::Reading reading_{.canvas = {.height = 64, .width = 64, .channels = 1, .fill = 0}};
  torch::Library ops_{torch::Library::FRAGMENT, kOps, std::nullopt, __FILE__, __LINE__};
};

TEST_F(GpuJpegTest, TakesFilesThatAreAcceptedAndNotReduced) {
  const GpuJpegDecoder decoder(kCpu, reading_, kOps);
  const auto turned = decoder.coded(write("turned.jpg", jpeg_file(200, 100, 6)));
  ASSERT_TRUE(turned);
  EXPECT_EQ(turned->orientation, 6);
  EXPECT_TRUE(decoder.coded(write("254.jpg", jpeg_file(254, 254))));
  EXPECT_FALSE(decoder.coded(write("256.jpg", jpeg_file(256, 256))));
  EXPECT_FALSE(decoder.coded(write("short.jpg", "\xFF\xD8\xFF")));
  EXPECT_FALSE(decoder.coded(write("text.jpg", std::string(200, 'a'))));
  EXPECT_FALSE(decoder.coded(write("large.jpg", jpeg_file(200, 100) + std::string(1 << 19, 'a'))));
  EXPECT_FALSE(decoder.coded(folder_ / "absent.jpg"));
}

TEST_F(GpuJpegTest, TurnsPhotographsUprightAndLeavesOutRefusedFiles) {
  const GpuJpegDecoder decoder(kCpu, reading_, kOps);
  const auto stored = decoder.coded(write("stored.jpg", jpeg_file(200, 100)));
  const auto turned = decoder.coded(write("turned.jpg", jpeg_file(200, 100, 6)));
  ASSERT_TRUE(stored && turned);
  const auto photos = decoder.decode({*stored, *turned, *stored});
  ASSERT_EQ(photos.size(), 3);
  ASSERT_TRUE(photos[0] && photos[1]);
  EXPECT_FALSE(photos[2]);
  const at::Tensor plane = at::arange(6, at::kByte).view({1, 2, 3});
  EXPECT_TRUE(photos[0]->pixels.equal(plane));
  EXPECT_TRUE(photos[1]->pixels.equal(plane.flip({1}).transpose(1, 2)));
  EXPECT_EQ(photos[1]->width, 2);
  EXPECT_EQ(photos[1]->height, 3);
  EXPECT_TRUE(decoder.decode({}).empty());
}

TEST_F(GpuJpegTest, DecodesColorsForACanvasWithColors) {
  reading_.canvas.channels = 3;
  const GpuJpegDecoder decoder(kCpu, reading_, kOps);
  const auto coded = decoder.coded(write("stored.jpg", jpeg_file(200, 100)));
  ASSERT_TRUE(coded);
  const auto photos = decoder.decode({*coded, *coded});
  ASSERT_TRUE(photos.at(0));
  EXPECT_EQ(photos[0]->pixels.sizes(), at::IntArrayRef({3, 2, 3}));
}

TEST(GpuJpegDecoders, AreForGpus) {
  const lensbox::Reading reading{.canvas = {.height = 64, .width = 64, .channels = 1, .fill = 0}};
  EXPECT_EQ(gpu_jpeg_decoder(kCpu, reading, Decode::kAuto, 64), nullptr);
  EXPECT_EQ(gpu_jpeg_decoder(kCpu, reading, Decode::kCpu, 64), nullptr);
  expect_error<lensbox::DeviceError>([&] { gpu_jpeg_decoder(kCpu, reading, Decode::kGpu, 1); },
                                     {"decode must be auto or cpu here, got gpu", "device cpu"});
}

}  // namespace
