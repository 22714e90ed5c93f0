#include <ATen/ATen.h>
#include <lensbox/torch/tensors.h>

#include <atomic>
#include <cmath>
#include <thread>

#include "helpers.h"
#include "small_artifact.h"

namespace {

using lensbox::Detection;
using lensbox::Detector;
using lensbox::ImageView;
using lensbox::PixelFormat;

// An image of one color, in a format and with `padding` bytes of 77 behind each row.
class Frame {
 public:
  Frame(int64_t width, int64_t height, std::vector<uint8_t> pixel, PixelFormat format = PixelFormat::kRgb8,
        int64_t padding = 0)
      : width_(width), height_(height), format_(format) {
    for (int64_t y = 0; y < height; ++y) {
      for (int64_t x = 0; x < width; ++x)
        bytes_.insert(bytes_.end(), pixel.begin(), pixel.end());
      bytes_.insert(bytes_.end(), static_cast<size_t>(padding), 77);
    }
    stride_ = width * static_cast<int64_t>(pixel.size()) + padding;
  }

  ImageView view() const { return {bytes_.data(), width_, height_, stride_, format_}; }

 private:
  int64_t width_;
  int64_t height_;
  PixelFormat format_;
  int64_t stride_;
  std::vector<uint8_t> bytes_;
};

// What the small artifact finds in an image of one color.
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

  std::optional<Detector> detector_;
};

TEST_F(DetectorOfMeans, SaysWhatTheArtifactSays) {
  const auto& metadata = detector_->metadata();
  EXPECT_EQ(metadata.name, "mean color");
  EXPECT_EQ(metadata.format_version, 2);
  EXPECT_EQ(metadata.lensbox_version, "0.1.0");
  EXPECT_EQ(metadata.reading.canvas.width, 8);
  EXPECT_EQ(metadata.reading.orientation, lensbox::Orientation::kExif);
  EXPECT_EQ(metadata.score_threshold, 0.125);
  EXPECT_EQ(metadata.iou_threshold, 0.5);
  EXPECT_TRUE(metadata.classes.empty());
  EXPECT_TRUE(metadata.json.starts_with("{\"format_version\":2,\"name\":\"mean color\""));
}

TEST_F(DetectorOfMeans, LooksAtFramesOfEveryFormat) {
  for (const int64_t padding : {0, 5}) {
    const Frame rgb(30, 20, {40, 80, 120}, PixelFormat::kRgb8, padding);
    expect_found(detector_->detect(rgb.view()), 30, 20, {40, 80, 120});
    const Frame bgr(30, 20, {120, 80, 40}, PixelFormat::kBgr8, padding);
    expect_found(detector_->detect(bgr.view()), 30, 20, {40, 80, 120});
    const Frame gray(30, 20, {90}, PixelFormat::kGray8, padding);
    expect_found(detector_->detect(gray.view()), 30, 20, {90, 90, 90});
    // By BT.601, 126 is the luma of gray 128.
    const Frame luma(30, 20, {126}, PixelFormat::kNv12, padding);
    const Frame chroma(15, 10, {128, 128}, PixelFormat::kNv12, padding);
    ImageView nv12 = luma.view();
    nv12.chroma = chroma.view().data;
    nv12.chroma_stride = chroma.view().stride;
    expect_found(detector_->detect(nv12), 30, 20, {128, 128, 128});
  }
}

TEST_F(DetectorOfMeans, FindsInABatchWhatItFindsInEach) {
  const Frame small(30, 20, {40, 80, 120});
  const Frame dark(7, 9, {40, 80, 1});
  const Frame large(640, 480, {255, 1, 99});
  const auto found = detector_->detect(std::vector{small.view(), dark.view(), large.view()});
  ASSERT_EQ(found.size(), 3);
  expect_found(found[0], 30, 20, {40, 80, 120});
  EXPECT_TRUE(found[1].empty());
  expect_found(found[2], 640, 480, {255, 1, 99});
  EXPECT_TRUE(detector_->detect(std::span<const ImageView>()).empty());
}

TEST_F(DetectorOfMeans, ReadsFiles) {
  const std::string png = png_file(2, 1, 3);  // 0, 7, 14 and 21, 28, 35
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
    files.push_back(write(std::to_string(width) + ".png", png_file(width, 1, 3)));
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
  expect_error<lensbox::InputError>([&] { detector_->detect_files(files, {.decode_threads = 0}, ignore); },
                                    {"options.decode_threads must be at least 1, got 0"});
  expect_error<lensbox::InputError>(
      [&] { detector_->detect_files(files, {.batch_size = 0, .decode_threads = 0}, ignore); },
      {"options.batch_size must be at least 1, got 0"});
  expect_error<lensbox::InputError>(
      [&] { detector_->detect_files(files, {.tiles = lensbox::TileSpec{.overlap = 1}}, ignore); },
      {"tiles must have an overlap of at least 0 and less than 1, got 1"});
  expect_error<lensbox::InputError>(
      [&] { detector_->detect_files(files, {.tiles = lensbox::TileSpec{.size = 0}}, ignore); },
      {"tiles must have a size of at least 1 pixel, got 0"});
  expect_error<lensbox::InputError>(
      [&] {
        detector_->detect_files(files, {.thresholds = {.iou = 2}, .tiles = lensbox::TileSpec{}}, ignore);
      },
      {"thresholds.iou must be a number from 0 to 1"});
}

TEST_F(DetectorOfMeans, ThresholdsAreItsOwnOrGiven) {
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

TEST_F(DetectorOfMeans, NamesTheImageThatCannotBeRead) {
  const Frame good(4, 4, {1, 1, 51});
  ImageView bad = good.view();
  bad.stride = 11;
  expect_error<lensbox::InputError>([&] { detector_->detect(std::vector{good.view(), bad}); },
                                    {"images[1]: the stride of data must be from 12", "got 11"});
}

TEST_F(DetectorOfMeans, ComputesTheLoss) {
  const std::vector<lensbox::Box> predictions{{0, 0, 4, 4}, {0, 0, 0, 0}};
  const std::vector<lensbox::Box> targets{{0, 0, 2, 4}, {0, 0, 0, 0}};
  const lensbox::Loss loss = detector_->loss(predictions, targets);
  EXPECT_EQ(loss.value, 0.25);
  EXPECT_EQ(loss.slots, 1);
  expect_error<lensbox::InputError>([&] { detector_->loss(predictions, {}); },
                                    {"same shape, got [2, 4] and [0, 4]"});
}

TEST_F(DetectorOfMeans, PassesItsSelfTest) {
  const auto report = detector_->self_test();
  EXPECT_TRUE(report.passed()) << report.failures.front();
  EXPECT_LT(report.max_box_error, 0.001);
}

TEST_F(DetectorOfMeans, CapturesNothingOnTheCpu) {
  detector_->capture(std::vector<int64_t>{1, 4});
  expect_found(detector_->detect(Frame(3, 3, {40, 80, 120}).view()), 3, 3, {40, 80, 120});
  expect_error<lensbox::InputError>([&] { detector_->capture(std::vector<int64_t>{0}); },
                                    {"batch_sizes", "0"});
  expect_error<lensbox::InputError>([&] { detector_->capture(std::vector<int64_t>{1}, {.score = 2}); },
                                    {"thresholds.score"});
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

TEST_F(DetectorOfMeans, EightThreadsFindWhatOneFinds) {
  std::atomic<int> wrong = 0;
  {
    std::vector<std::jthread> threads;
    for (uint8_t thread = 0; thread < 8; ++thread) {
      threads.emplace_back([&, thread] {
        for (uint8_t call = 0; call < 25; ++call) {
          const auto red = static_cast<uint8_t>(10 * thread + 1);
          const Frame frame(255, 255, {red, call, 200});
          const Frame other(255, 255, {1, 2, 201});
          const auto found = detector_->detect(std::vector{frame.view(), other.view()});
          const bool right = found[0].size() == 1 && std::abs(found[0][0].box[2] - red) < 1e-3F &&
                             std::abs(found[0][0].box[3] - call) < 1e-3F &&
                             std::abs(found[1][0].box[2] - 1) < 1e-3F;
          const lensbox::Box box{0, 0, static_cast<float>(red), 0};
          const bool right_loss = detector_->loss({&box, 1}, std::vector<lensbox::Box>(1)).value == red / 4.0;
          wrong += !(right && right_loss && detector_->metadata().reading.canvas.width == 8);
        }
        wrong += !detector_->self_test().passed();
      });
    }
  }
  EXPECT_EQ(wrong, 0);
}

TEST_F(DetectorOfMeans, FindsTheSameOnAGpuWithGraphsAndWithout) {
  if (!at::globalContext().hasCUDA()) GTEST_SKIP() << "needs a GPU";
  Detector gpu = Detector::load(artifact(), {.device = "cuda"});
  const Frame first(30, 20, {40, 80, 120}, PixelFormat::kRgb8, 5);
  const Frame second(640, 480, {99, 1, 255}, PixelFormat::kBgr8);
  for (const bool with_graphs : {false, true}) {
    if (with_graphs) gpu.capture(std::vector<int64_t>{4});
    const auto found = gpu.detect(std::vector{first.view(), second.view()});
    expect_found(found[0], 30, 20, {40, 80, 120});
    expect_found(found[1], 640, 480, {255, 1, 99});
    const auto canvases = at::full({2, 3, 8, 8}, 51, at::TensorOptions().dtype(at::kByte).device(c10::kCUDA));
    const lensbox::Found on_canvas = detect_canvases(gpu, canvases);
    EXPECT_TRUE(on_canvas.boxes.is_cuda());
    EXPECT_NEAR(on_canvas.scores[1][0].item<float>(), 0.2, 1e-6);
  }
  EXPECT_TRUE(gpu.self_test().passed());
}

TEST_F(DetectorOfMeans, ThrowsErrorsWithTheirCode) {
  const auto code_of = [](auto function) {
    try {
      function();
    } catch (const lensbox::Error& error) {
      return static_cast<int>(error.code());
    }
    return 0;
  };
  EXPECT_EQ(code_of([] { Detector::load("none.pt"); }), 3);
  EXPECT_EQ(code_of([&] { Detector::load(artifact(), {.device = "tpu"}); }), 2);
  EXPECT_EQ(code_of([this] { detector_->detect(ImageView{nullptr, 1, 1, 1, PixelFormat::kGray8}); }), 4);
  const lensbox::Box negative{-1, 0, 0, 0};
  EXPECT_EQ(code_of([&] { detector_->loss({&negative, 1}, {&negative, 1}); }), 3);
}

}  // namespace
