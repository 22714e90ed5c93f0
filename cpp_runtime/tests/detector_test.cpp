#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <lensbox/torch/tensors.h>
#include <openssl/evp.h>
#include <openssl/pem.h>

#include <cmath>
#include <cstdio>
#include <memory>
#include <thread>

#include "helpers.h"
#include "small_detectors.h"

namespace {

using lensbox::Detection;
using lensbox::Detector;
using lensbox::ImageView;
using lensbox::PixelFormat;

// An image of one color, RGB.
class Frame {
 public:
  Frame(int64_t width, int64_t height, std::array<uint8_t, 3> pixel)
      : width_(width), height_(height), pixels_(width * height, pixel) {}

  ImageView view() const { return {pixels_[0].data(), width_, height_, 3 * width_, PixelFormat::kRgb8}; }

 private:
  int64_t width_, height_;
  std::vector<std::array<uint8_t, 3>> pixels_;
};

// Expect the detection of the small artifact in an image of one color.
void expect_found(const std::vector<Detection>& found, int64_t width, int64_t height,
                  std::array<float, 3> color) {
  ASSERT_EQ(found.size(), 1);
  EXPECT_EQ(found[0].box[0], 0);
  EXPECT_EQ(found[0].box[1], 0);
  EXPECT_NEAR(found[0].box[2], static_cast<float>(width) * color[0] / 255, 1e-4);
  EXPECT_NEAR(found[0].box[3], static_cast<float>(height) * color[1] / 255, 1e-4);
  EXPECT_NEAR(found[0].score, color[2] / 255, 1e-6);
}

class DetectorOfMeans : public TemporaryFolder {
 protected:
  void SetUp() override {
    TemporaryFolder::SetUp();
    save_small_artifact(artifact());
    detector_ = Detector::load(artifact());
  }

  std::filesystem::path artifact() const { return folder_ / "small.pt"; }

  std::vector<uint8_t> content() const {
    std::ifstream stream(artifact(), std::ios::binary);
    return {std::istreambuf_iterator<char>(stream), {}};
  }

  std::optional<Detector> detector_;
};

// Sign the seal of an artifact with a key that is new, and write the public key.
std::vector<uint8_t> signed_by_new_key(const std::vector<uint8_t>& bytes, const std::filesystem::path& pem) {
  const std::array<uint8_t, 32> secret{7};
  const std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)> key(
      EVP_PKEY_new_raw_private_key(EVP_PKEY_ED25519, nullptr, secret.data(), secret.size()), &EVP_PKEY_free);
  const std::unique_ptr<FILE, decltype(&fclose)> file(fopen(pem.c_str(), "w"), &fclose);
  EXPECT_EQ(PEM_write_PUBKEY(file.get(), key.get()), 1);
  const std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context(EVP_MD_CTX_new(), &EVP_MD_CTX_free);
  EVP_DigestSignInit(context.get(), nullptr, nullptr, nullptr, key.get());
  std::vector<uint8_t> signature(64);
  size_t size = signature.size();
  EXPECT_EQ(EVP_DigestSign(context.get(), signature.data(), &size, &bytes.end()[-64], 64), 1);
  return signature;
}

TEST_F(DetectorOfMeans, LoadsFromMemory) {
  std::vector<uint8_t> bytes = content();
  const Detector detector = Detector::load(bytes, {.threads = 1});
  EXPECT_EQ(detector.device(), "cpu");
  const Frame frame(30, 20, {40, 80, 120});
  const int threads = at::get_num_threads();
  expect_found(detector.detect(frame.view()), 30, 20, {40, 80, 120});
  EXPECT_EQ(at::get_num_threads(), threads);
  const lensbox::LoadOptions with_key{.public_key = folder_ / "key.pem"};
  expect_error<lensbox::ArtifactError>([&] { Detector::load(bytes, with_key); },
                                       {"artifact in memory", "options.signature is empty"});
  expect_error<lensbox::InputError>([&] { Detector::load(bytes, {.threads = 1025}); }, {"got 1025"});
  bytes.pop_back();
  expect_error<lensbox::ArtifactError>([&] { Detector::load(bytes); }, {"artifact in memory", "damaged"});
}

TEST_F(DetectorOfMeans, LoadsFromMemoryWithItsSignature) {
  const std::vector<uint8_t> bytes = content();
  lensbox::LoadOptions options{.public_key = folder_ / "key.pem"};
  options.signature = signed_by_new_key(bytes, *options.public_key);
  const Frame frame(30, 20, {40, 80, 120});
  expect_found(Detector::load(bytes, options).detect(frame.view()), 30, 20, {40, 80, 120});
  const auto refused = [&](const char* reason) {
    expect_error<lensbox::ArtifactError>([&] { Detector::load(bytes, options); }, {reason});
  };
  options.signature[5] ^= 1;
  refused("options.signature does not match");
  options.signature.pop_back();
  refused("signature options.signature: must have 64 bytes, has 63");
}

TEST_F(DetectorOfMeans, FindsTheSameInABatch) {
  const Frame small(30, 20, {40, 80, 120}), dark(7, 9, {40, 80, 1}), large(640, 480, {255, 1, 99});
  const auto found = detector_->detect(std::vector{small.view(), dark.view(), large.view()});
  ASSERT_EQ(found.size(), 3);
  expect_found(found[0], 30, 20, {40, 80, 120});
  EXPECT_TRUE(found[1].empty());
  expect_found(found[2], 640, 480, {255, 1, 99});
  EXPECT_TRUE(detector_->detect(std::span<const ImageView>()).empty());
  ImageView bad = small.view();
  bad.stride = 89;
  expect_error<lensbox::InputError>([&] { detector_->detect(std::vector{small.view(), bad}); },
                                    {"images[1]: the stride of data must be from 90", "got 89"});
}

TEST_F(DetectorOfMeans, ReadsFiles) {
  const std::string png = png_file(2);  // 0, 7, 14 and 21, 28, 35
  const auto path = write("image.png", png);
  const std::span bytes(reinterpret_cast<const uint8_t*>(png.data()), png.size());
  for (const auto& found :
       {detector_->detect_file(path, {.score = 0}), detector_->detect_file(bytes, {.score = 0})}) {
    EXPECT_EQ(found.width, 2);
    EXPECT_EQ(found.height, 1);
    expect_found(found.detections, 2, 1, {10, 18, 24});
  }
  expect_error<lensbox::InputError>([&] { detector_->detect_file(folder_ / "none.png"); },
                                    {"none.png", "no such file"});
}

TEST_F(DetectorOfMeans, ReadsManyFiles) {
  std::vector<std::filesystem::path> files;  // pictures that are told apart by their widths
  std::vector<int64_t> expected;
  for (uint32_t width = 1; width <= 20; ++width) {
    files.push_back(write(std::to_string(width) + ".png", png_file(width)));
    expected.push_back(width);
  }
  std::filesystem::remove(files[7]);
  expected[7] = 0;
  for (const auto& [batch_size, threads] : {std::pair<size_t, size_t>{1, 1}, {2, 3}, {5, 30}, {50, 2}}) {
    std::vector<int64_t> widths;
    detector_->detect_files(files, {.batch_size = batch_size, .decode_threads = threads},
                            [&](size_t i, const lensbox::FileOutcome& outcome) {
                              EXPECT_EQ(i, widths.size());
                              const auto* const found = std::get_if<lensbox::FileDetections>(&outcome);
                              widths.push_back(found == nullptr ? 0 : found->width);
                            });
    EXPECT_EQ(widths, expected);
  }
  const auto ignore = [](size_t, const lensbox::FileOutcome&) {};
  detector_->detect_files({}, {}, ignore);
  const auto raise = [](size_t, const lensbox::FileOutcome&) { throw std::out_of_range("of the caller"); };
  EXPECT_THROW(detector_->detect_files(files, {}, raise), std::out_of_range);
  files[17] = write("wide.png", png_file(99));
  size_t reported = 0;  // the batches before a failure
  const auto count = [&](size_t, const lensbox::FileOutcome&) { ++reported; };
  expect_error<lensbox::ArtifactError>([&] { detector_->detect_files(files, {.batch_size = 4}, count); },
                                       {"preprocess failed", "99 columns"});
  EXPECT_EQ(reported, 16);
  const std::pair<lensbox::FilesOptions, const char*> refused[] = {
      {{.decode_threads = 0}, "options.decode_threads must be at least 1, got 0"},
      {{.batch_size = 0, .decode_threads = 0}, "options.batch_size must be at least 1, got 0"},
      {{.tiles = lensbox::TileSpec{.overlap = 1}}, "an overlap of at least 0 and less than 1, got 1"},
      {{.tiles = lensbox::TileSpec{.size = 0}}, "tiles must have a size of at least 1 pixel, got 0"},
      {{.thresholds = {.iou = 2}}, "thresholds.iou must be a number from 0 to 1"},
  };
  for (const auto& [options, reason] : refused) {
    expect_error<lensbox::InputError>([&] { detector_->detect_files(files, options, ignore); }, {reason});
  }
}

TEST_F(DetectorOfMeans, ThresholdsDefaultToTheArtifact) {
  const Frame frame(4, 4, {1, 1, 51});  // score 0.2
  EXPECT_EQ(detector_->detect(frame.view()).size(), 1);
  EXPECT_EQ(detector_->detect(frame.view(), {.score = 0.19}).size(), 1);
  EXPECT_EQ(detector_->detect(frame.view(), {.score = 0.21}).size(), 0);
  for (const double value : {-0.1, 1.1, std::nan("")}) {
    expect_error<lensbox::InputError>([&] { detector_->detect(frame.view(), {.score = value}); },
                                      {"thresholds.score must be a number from 0 to 1, got"});
    expect_error<lensbox::InputError>([&] { detector_->detect(frame.view(), {.iou = value}); },
                                      {"thresholds.iou must be"});
  }
}

constexpr lensbox::Thresholds kHalf{.score = 0.5, .iou = 0.5};

TEST_F(DetectorOfMeans, GivesTensors) {
  const at::Tensor canvases =
      at::tensor({51, 102, 204, 10, 20, 0}, at::kByte).view({2, 3, 1, 1}).expand({2, 3, 8, 8});
  const lensbox::Found on_canvas = detect_canvases(*detector_, canvases, kHalf);
  EXPECT_TRUE(
      at::equal(on_canvas.boxes, at::tensor({0, 0, 51, 102, 0, 0, 10, 20}, at::kFloat).view({2, 1, 4})));
  EXPECT_TRUE(at::equal(on_canvas.counts, at::tensor({1, 0}, at::kInt)));

  const at::Tensor image = at::tensor({51, 102, 204}, at::kByte).view({3, 1, 1}).expand({3, 10, 100});
  const lensbox::Found in_image = detect_tensors(*detector_, {lensbox::Photo::of(image)}, kHalf);
  EXPECT_TRUE(at::allclose(in_image.boxes, at::tensor({0, 0, 20, 4}, at::kFloat).view({1, 1, 4})));
  EXPECT_TRUE(at::allclose(in_image.scores, at::tensor({0.8}, at::kFloat).view({1, 1})));

  const auto refused = [&](const at::Tensor& given, const char* got) {
    expect_error<lensbox::InputError>([&] { detect_canvases(*detector_, given, kHalf); },
                                      {"canvases must be uint8 [B, 3, 8, 8]", got});
  };
  refused(canvases.to(at::kFloat), "Float [2, 3, 8, 8]");
  refused(canvases[0], "Byte [3, 8, 8]");
  refused(canvases.narrow(0, 0, 0), "Byte [0, 3, 8, 8]");
  refused(canvases.narrow(2, 0, 7), "Byte [2, 3, 7, 8]");
  expect_error<lensbox::InputError>([&] { detect_tensors(*detector_, {}, kHalf); },
                                    {"photos must be at least one"});
}

TEST_F(DetectorOfMeans, IsThreadSafe) {
  std::vector<std::jthread> threads;
  for (uint8_t thread = 0; thread < 8; ++thread) {
    threads.emplace_back([&, red = static_cast<uint8_t>(10 * thread + 1)] {
      const Frame frame(255, 255, {red, 20, 200}), other(255, 255, {1, 2, 201});
      const lensbox::Box box{0, 0, static_cast<float>(red), 0};
      for (int call = 0; call < 25; ++call) {
        const auto found = detector_->detect(std::vector{frame.view(), other.view()});
        expect_found(found[0], 255, 255, {static_cast<float>(red), 20, 200});
        expect_found(found[1], 255, 255, {1, 2, 201});
        EXPECT_EQ(detector_->loss({&box, 1}, std::vector<lensbox::Box>(1)).value, red / 4.0);
      }
      EXPECT_TRUE(detector_->self_test().passed());
    });
  }
}

}  // namespace
