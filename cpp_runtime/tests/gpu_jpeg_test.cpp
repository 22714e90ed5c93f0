#include "detect/gpu_jpeg.h"

#include <ATen/ATen.h>
#include <lensbox/torch/tensors.h>
#include <torch/library.h>

#include <cstdio>

#include "helpers.h"
#include "small_artifact.h"

namespace {

using lensbox::Decode;
using lensbox::GpuJpegDecoder;

const c10::Device kCpu(c10::kCPU);
constexpr const char* kOps = "lensbox_jpeg_test";

// Stand-ins for the ops of lensbox_jpeg. A file WIDTHxHEIGHT.jpg, or WIDTHxHEIGHT-ORIENTATION.jpg, is one
// that a GPU may decode; its content here is width, height and EXIF data. Other files are empty.
std::vector<at::Tensor> read_files(const std::vector<std::string>& paths) {
  std::vector<at::Tensor> files;
  for (const std::string& path : paths) {
    const std::string name = std::filesystem::path(path).filename().string();
    TORCH_CHECK(name != "broken.jpg", "the file is broken");
    int width = 0, height = 0, orientation = 1;
    std::sscanf(name.c_str(), "%dx%d-%d.jpg", &width, &height, &orientation);
    std::vector<int64_t> bytes;
    if (height > 0) {
      bytes = {width / 256, width % 256, height / 256, height % 256, 'M', 'M', 0, 42, 0, 0, 0, 8, 0, 1};
      bytes.insert(bytes.end(), {1, 0x12, 0, 3, 0, 0, 0, 1, 0, orientation, 0, 0});
    }
    files.push_back(at::tensor(bytes, at::kByte));
  }
  return files;
}

at::Tensor headers(const std::vector<at::Tensor>& files) {
  std::vector<int64_t> numbers;
  for (const at::Tensor& file : files) {
    const auto* const bytes = file.const_data_ptr<uint8_t>();
    if (file.numel() == 0) {
      numbers.insert(numbers.end(), 4, 0);
    } else {
      numbers.insert(numbers.end(), {bytes[0] << 8 | bytes[1], bytes[2] << 8 | bytes[3], 4, file.numel()});
    }
  }
  return at::tensor(numbers, at::kLong).view({-1, 4});
}

// Stand in for the GPU: planes of 0 to 5, and none for the last file.
template <int64_t kChannels>
std::vector<at::Tensor> decode(const std::vector<at::Tensor>& files, at::Device device) {
  const auto plane = at::arange(6, at::TensorOptions().dtype(at::kByte).device(device)).view({1, 2, 3});
  // Interleaved in memory, as photographs on the CPU are.
  const auto pixels = plane.permute({1, 2, 0}).expand({2, 3, kChannels}).contiguous();
  std::vector<at::Tensor> planes(files.size(), pixels.permute({2, 0, 1}));
  planes.back() = at::empty({0}, at::kByte);
  return planes;
}

class GpuJpegTest : public TemporaryFolder {
 protected:
  void SetUp() override {
    TemporaryFolder::SetUp();
    ops_.def("read_files(str[] paths) -> Tensor[]", read_files);
    ops_.def("headers(Tensor[] files) -> Tensor", headers);
    ops_.def("decode_luma(Tensor[] files, Device device) -> Tensor[]", decode<1>);
    ops_.def("decode_rgb(Tensor[] files, Device device) -> Tensor[]", decode<3>);
  }

  lensbox::Reading reading_{.canvas = {.height = 64, .width = 64, .channels = 1, .fill = 0}};
  torch::Library ops_{torch::Library::FRAGMENT, kOps, std::nullopt, __FILE__, __LINE__};
};

// The stand-in refuses the last file of a batch.
TEST_F(GpuJpegTest, TakesFilesThatAreAcceptedAndNotReduced) {
  const GpuJpegDecoder decoder(kCpu, reading_, kOps);
  const std::vector<std::filesystem::path> paths{"200x100-6.jpg", "257x254.jpg", "text.jpg",   "absent.jpg",
                                                 "254x254.jpg",   "256x256.jpg", "254x254.jpg"};
  const auto photos = decoder.read(paths);
  ASSERT_EQ(photos.size(), paths.size());
  for (size_t i = 0; i < paths.size(); ++i) {
    EXPECT_EQ(photos[i].has_value(), i == 0 || i == 4) << paths[i];
  }
  const at::Tensor plane = at::arange(6, at::kByte).view({1, 2, 3});
  EXPECT_TRUE(photos[0]->pixels.equal(plane.flip({1}).transpose(1, 2)));
  EXPECT_EQ(photos[0]->width, 2);
  EXPECT_EQ(photos[0]->height, 3);
  EXPECT_TRUE(photos[4]->pixels.equal(plane));
  EXPECT_FALSE(decoder.read(std::span(paths).subspan(1, 2))[0]);
  reading_.canvas.channels = 3;
  const auto colored = GpuJpegDecoder(kCpu, reading_, kOps).read(paths);
  EXPECT_EQ(colored.at(0)->pixels.sizes(), at::IntArrayRef({3, 3, 2}));
}

// On a canvas of 64 x 128, a photograph of 200 x 300 is decoded in half the size, and at full size once
// turned.
TEST_F(GpuJpegTest, ReducesUprightPhotographs) {
  reading_.canvas.width = 128;
  const std::vector<std::filesystem::path> paths{"300x130.jpg", "300x130-6.jpg", "200x100.jpg"};
  const auto taken = [&] {
    const auto photos = GpuJpegDecoder(kCpu, reading_, kOps).read(paths);
    return std::pair(photos[0].has_value(), photos[1].has_value());
  };
  EXPECT_EQ(taken(), std::pair(true, false));
  reading_.orientation = lensbox::Orientation::kStored;
  EXPECT_EQ(taken(), std::pair(true, true));
}

// The plane that stands in for a decoded one is 3 pixels wide. The last plane of each batch is refused, and
// the CPU decodes that file. Batches before a failure are reported.
TEST_F(GpuJpegTest, DecodesBatchesOfFiles) {
  save_small_artifact(folder_ / "detector.pt");
  const auto detector = lensbox::Detector::load(folder_ / "detector.pt");
  const GpuJpegDecoder decoder(kCpu, reading_, kOps);
  std::vector<std::filesystem::path> files;
  for (uint32_t side = 100; side < 137; ++side) {
    files.push_back(write(std::to_string(side) + "x1.jpg", png_file(side)));
  }
  files[7] = folder_ / "absent.jpg";
  std::vector<int64_t> widths;
  const auto detect = [&](size_t batch_size, size_t threads) {
    widths.clear();
    detect_files(detector, files, {.batch_size = batch_size, .decode_threads = threads}, reading_, &decoder,
                 [&](size_t, const lensbox::FileOutcome& outcome) {
                   const auto* const found = std::get_if<lensbox::FileDetections>(&outcome);
                   widths.push_back(found == nullptr ? 0 : found->width);
                 });
  };
  for (const auto& [batch_size, threads] : {std::pair<size_t, size_t>{1, 1}, {5, 30}, {10, 1}, {40, 2}}) {
    detect(batch_size, threads);
    ASSERT_EQ(widths.size(), files.size());
    for (size_t i = 0; i < files.size(); ++i) {
      const bool is_last = (i + 1) % batch_size == 0 || i + 1 == files.size();
      EXPECT_EQ(widths[i], i == 7 ? 0 : is_last ? 100 + static_cast<int64_t>(i) : 3);
    }
  }
  files[9] = folder_ / "broken.jpg";
  expect_error<lensbox::Error>([&] { detect(4, 1); }, {"the file is broken"});
  EXPECT_EQ(widths.size(), 8);
}

TEST(GpuJpegDecoders, AreForGpus) {
  const lensbox::Reading reading{.canvas = {.height = 64, .width = 64, .channels = 1, .fill = 0}};
  EXPECT_EQ(gpu_jpeg_decoder(kCpu, reading, Decode::kAuto, 64), nullptr);
  EXPECT_EQ(gpu_jpeg_decoder(kCpu, reading, Decode::kCpu, 64), nullptr);
  expect_error<lensbox::DeviceError>([&] { gpu_jpeg_decoder(kCpu, reading, Decode::kGpu, 1); },
                                     {"decode must be auto or cpu here, got gpu", "device cpu"});
}

}  // namespace
