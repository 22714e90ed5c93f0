#include <lensbox/detector.h>

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "backends/call.h"
#include "detect/steps.h"
#include "file/errors.h"
#include "file/files.h"
#include "images/decoders.h"

namespace lensbox {
namespace {

constexpr const char* kInMemory = "in memory";  // its name in errors
constexpr int kMostThreads = 1024;

double checked(const char* name, const std::optional<double>& given, double by_default) {
  const double value = given.value_or(by_default);
  if (value >= 0 && value <= 1) return value;
  throw InputError(std::string("thresholds.") + name + " must be a number from 0 to 1, got " +
                   std::to_string(value));
}

FileDetections detect_one(const Detector::Parts& parts, DecodedPhoto photo, const Thresholds& thresholds) {
  const int64_t width = photo.width;
  const int64_t height = photo.height;
  return {width, height, std::move(detect_sources(parts, {{std::move(photo)}}, thresholds).front())};
}

// path: for errors.
Detector::Parts load_parts(const std::filesystem::path& path, ArtifactFile file, const std::string& device,
                           const LoadOptions& options) {
  if (options.threads < 0 || options.threads > kMostThreads) {
    throw InputError("options.threads must be from 0 to " + std::to_string(kMostThreads) + ", got " +
                     std::to_string(options.threads));
  }
  Metadata metadata = file.metadata;
  std::shared_ptr<Backend> backend;
  if (file.metadata.file_kind != FileKind::kOnnx) {
    backend = load_with_torch(path, std::move(file), device, options);
  } else if (device == "cpu") {
    backend = load_onnx(path, file, options.threads > 0 ? options.threads : default_threads());
  } else {
    throw DeviceError("device must be cpu for an ONNX file, got " + device + " for " + path.string());
  }
  [[maybe_unused]] static const bool is_set = (end_calls_at_exit(), true);
  return {path, std::move(metadata), std::move(backend)};
}

}  // namespace

DecodedPhoto decode_file(const std::filesystem::path& path, const Reading& reading) {
  constexpr uint64_t kMaxFileSize = std::numeric_limits<int>::max();
  return named("image " + path.string(), [&] {
    const std::string bytes = read_file(path, kMaxFileSize);
    return decode_photo({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()}, reading);
  });
}

std::pair<double, double> checked(const Thresholds& thresholds, const Metadata& metadata) {
  return {checked("score", thresholds.score, metadata.score_threshold),
          checked("iou", thresholds.iou, metadata.iou_threshold)};
}

std::vector<std::vector<Detection>> detect_sources(const Detector::Parts& parts,
                                                   const std::vector<Source>& photos,
                                                   const Thresholds& thresholds) {
  if (photos.empty()) return {};
  const auto [score, iou] = checked(thresholds, parts.metadata);
  return collect(parts.artifact, outputs_of(parts.metadata), parts.backend->detect(photos, score, iou)());
}

Detector::Detector(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
Detector::Detector(Detector&&) noexcept = default;
Detector& Detector::operator=(Detector&&) noexcept = default;
Detector::~Detector() = default;

Detector Detector::load(const std::filesystem::path& artifact, const LoadOptions& options) {
  return guarded([&] {
    const std::string device = checked_device(options.device);
    ArtifactFile file = read_artifact_file(artifact, options.public_key);
    return Detector(std::make_unique<Parts>(load_parts(artifact, std::move(file), device, options)));
  });
}

Detector Detector::load(std::span<const uint8_t> artifact, const LoadOptions& options) {
  return guarded([&] {
    const std::string device = checked_device(options.device);
    ArtifactFile file = artifact_in_memory(artifact, kInMemory, options.public_key, options.signature);
    return Detector(std::make_unique<Parts>(load_parts(kInMemory, std::move(file), device, options)));
  });
}

const Metadata& Detector::metadata() const {
  return parts_->metadata;
}

std::string Detector::device() const {
  return parts_->backend->device();
}

std::vector<Detection> Detector::detect(const ImageView& image, const Thresholds& thresholds,
                                        const std::optional<TileSpec>& tiles) const {
  return guarded_call([&] {
    DecodedPhoto photo = named("image", [&] { return read_frame(image, metadata().reading); });
    if (tiles) return detect_in_tiles(*parts_, photo, *tiles, thresholds);
    return detect_one(*parts_, std::move(photo), thresholds).detections;
  });
}

std::vector<std::vector<Detection>> Detector::detect(std::span<const ImageView> images,
                                                     const Thresholds& thresholds) const {
  return guarded_call([&] {
    std::vector<Source> photos;
    for (const ImageView& image : images) {
      const std::string name = "images[" + std::to_string(photos.size()) + "]";
      photos.push_back({named(name, [&] { return read_frame(image, metadata().reading); })});
    }
    return detect_sources(*parts_, photos, thresholds);
  });
}

FileDetections Detector::detect_file(const std::filesystem::path& file, const Thresholds& thresholds) const {
  return guarded_call([&] { return detect_one(*parts_, decode_file(file, metadata().reading), thresholds); });
}

FileDetections Detector::detect_file(std::span<const uint8_t> file, const Thresholds& thresholds) const {
  return guarded_call([&] {
    DecodedPhoto photo = named("the image data", [&] { return decode_photo(file, metadata().reading); });
    return detect_one(*parts_, std::move(photo), thresholds);
  });
}

Loss Detector::loss(std::span<const Box> predictions, std::span<const Box> targets) const {
  return guarded_call([&] {
    if (predictions.size() != targets.size()) {
      throw InputError("predictions and targets must have the same shape, got [" +
                       std::to_string(predictions.size()) + ", 4] and [" + std::to_string(targets.size()) +
                       ", 4]");
    }
    return parts_->backend->loss(predictions, targets);
  });
}

void Detector::capture(std::span<const int64_t> batch_sizes, const Thresholds& thresholds) {
  guarded_call([&] {
    const std::vector<int64_t> sizes(batch_sizes.begin(), batch_sizes.end());
    const auto [score, iou] = checked(thresholds, parts_->metadata);
    if (sizes.empty() || std::ranges::min(sizes) < 1) {
      throw InputError("batch_sizes must be at least one size, and none below 1, got " + text_of(sizes));
    }
    parts_->backend->capture(sizes, score, iou);
  });
}

}  // namespace lensbox
