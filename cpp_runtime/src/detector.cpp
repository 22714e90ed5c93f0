#include <ATen/ATen.h>
#include <lensbox/detector.h>
#include <lensbox/torch/artifact.h>
#include <lensbox/torch/device.h>
#include <lensbox/torch/self_test.h>

#include <string>
#include <utility>

#include "frame.h"
#include "torch_error.h"

namespace lensbox {
namespace {

// Calls `function`, and makes what is thrown there an Error.
template <class Function>
auto guarded(Function function) {
  try {
    return function();
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    throw Error(ErrorCode::kInternal, "lensbox: unexpected error:\n" + torch_message(error));
  }
}

double checked(const char* name, const std::optional<double>& given, double by_default) {
  const double value = given.value_or(by_default);
  if (value >= 0 && value <= 1) return value;
  throw InputError(std::string("thresholds.") + name + " must be a number from 0 to 1, got " +
                   std::to_string(value));
}

// float32 [N, 4] in the memory of the boxes.
at::Tensor tensor_of(std::span<const Box> boxes) {
  const auto count = static_cast<int64_t>(boxes.size());
  return at::from_blob(const_cast<Box*>(boxes.data()), {count, 4}, at::kFloat);
}

DetectorMetadata summary(const Metadata& metadata) {
  const auto text = [&](const char* key) { return metadata.document.at(key).get<std::string>(); };
  return {.name = text("name"),
          .format_version = metadata.format_version,
          .lensbox_version = text("lensbox_version"),
          .torch_version = metadata.torch_version,
          .canvas = metadata.reading.canvas,
          .reading = metadata.reading.reading,
          .classes = metadata.classes,
          .extras = metadata.extras,
          .score_threshold = metadata.score_threshold,
          .iou_threshold = metadata.iou_threshold,
          .json = metadata.document.dump()};
}

}  // namespace

struct Detector::Parts {
  explicit Parts(Artifact loaded) : artifact(std::move(loaded)), metadata(summary(artifact.metadata())) {}

  std::vector<std::vector<Detection>> detect(const std::vector<Photo>& photos,
                                             const Thresholds& thresholds) const {
    return artifact.detect(photos, checked("score", thresholds.score, metadata.score_threshold),
                           checked("iou", thresholds.iou, metadata.iou_threshold));
  }

  FileDetections detect_file(Photo photo, const Thresholds& thresholds) const {
    const int64_t width = photo.width;
    const int64_t height = photo.height;
    return {width, height, std::move(detect({std::move(photo)}, thresholds).front())};
  }

  Artifact artifact;
  DetectorMetadata metadata;
};

Detector::Detector(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
Detector::Detector(Detector&&) noexcept = default;
Detector& Detector::operator=(Detector&&) noexcept = default;
Detector::~Detector() = default;

Detector Detector::load(const std::filesystem::path& artifact, const LoadOptions& options) {
  return guarded([&] {
    const c10::Device device = parse_device(options.device);
    return Detector(std::make_unique<Parts>(
        Artifact::load(artifact, device, options.op_library, options.trust, options.public_key)));
  });
}

const DetectorMetadata& Detector::metadata() const {
  return parts_->metadata;
}

std::vector<Detection> Detector::detect(const ImageView& image, const Thresholds& thresholds) const {
  return guarded([&] {
    const Photo photo = to_photo(image, parts_->artifact.metadata().reading);
    return std::move(parts_->detect({photo}, thresholds).front());
  });
}

std::vector<std::vector<Detection>> Detector::detect(std::span<const ImageView> images,
                                                     const Thresholds& thresholds) const {
  return guarded([&] {
    std::vector<Photo> photos;
    for (const ImageView& image : images) {
      const std::string name = "images[" + std::to_string(photos.size()) + "]";
      photos.push_back(read_frame(image, parts_->artifact.metadata().reading, name));
    }
    return parts_->detect(photos, thresholds);
  });
}

FileDetections Detector::detect_file(const std::filesystem::path& file, const Thresholds& thresholds) const {
  return guarded(
      [&] { return parts_->detect_file(read_photo(file, parts_->artifact.metadata().reading), thresholds); });
}

FileDetections Detector::detect_file(std::span<const uint8_t> file, const Thresholds& thresholds) const {
  return guarded(
      [&] { return parts_->detect_file(read_photo(file, parts_->artifact.metadata().reading), thresholds); });
}

Loss Detector::loss(std::span<const Box> predictions, std::span<const Box> targets) const {
  return guarded([&] { return parts_->artifact.loss(tensor_of(predictions), tensor_of(targets)); });
}

SelfTestReport Detector::self_test() const {
  return guarded([&] { return run_self_test(parts_->artifact); });
}

void Detector::capture(std::span<const int64_t> batch_sizes, const Thresholds& thresholds) {
  guarded([&] {
    parts_->artifact.capture({batch_sizes.begin(), batch_sizes.end()},
                             checked("score", thresholds.score, parts_->metadata.score_threshold),
                             checked("iou", thresholds.iou, parts_->metadata.iou_threshold));
  });
}

const Artifact& Detector::artifact() const {
  return parts_->artifact;
}

}  // namespace lensbox
