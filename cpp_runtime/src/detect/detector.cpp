#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <lensbox/torch/tensors.h>

#include <algorithm>
#include <string>
#include <utility>

#include "detect/steps.h"
#include "file/errors.h"
#include "model/call.h"

namespace lensbox {

namespace {

// --- detecting ---

double checked(const char* name, const std::optional<double>& given, double by_default) {
  const double value = given.value_or(by_default);
  if (value >= 0 && value <= 1) return value;
  throw InputError(std::string("thresholds.") + name + " must be a number from 0 to 1, got " +
                   std::to_string(value));
}

// Detect in canvases on the device, with a graph if one was recorded for such a batch.
Found find(const Detector::Parts& parts, const at::Tensor& canvases, const Thresholds& thresholds) {
  const auto [score, iou] = checked(thresholds, parts.metadata);
  if (parts.graphs) {
    if (auto found = parts.graphs(canvases, score, iou)) return *std::move(found);
  }
  return parts.module->detect(canvases, score, iou);
}

void check_canvases(const at::Tensor& canvases, const Canvas& canvas) {
  const bool fits =
      canvases.dim() == 4 && canvases.numel() > 0 &&
      canvases.sizes().slice(1) == at::IntArrayRef{canvas.channels, canvas.height, canvas.width};
  if (fits && canvases.scalar_type() == at::kByte) return;
  throw InputError(c10::str("canvases must be uint8 [B, ", canvas.channels, ", ", canvas.height, ", ",
                            canvas.width, "] with B at least 1, got ", c10::toString(canvases.scalar_type()),
                            " ", canvases.sizes()));
}

void check_boxes(const at::Tensor& predictions, const at::Tensor& targets) {
  if (predictions.sizes() != targets.sizes()) {
    throw InputError(c10::str("predictions and targets must have the same shape, got ", predictions.sizes(),
                              " and ", targets.sizes()));
  }
  if (predictions.dim() < 2 || predictions.size(-1) != 4) {
    throw InputError(c10::str("predictions must be [N, 4] or [B, N, 4], got ", predictions.sizes()));
  }
}

LossAndGradient loss_of(const Detector& detector, const at::Tensor& predictions, const at::Tensor& targets,
                        bool with_gradient) {
  check_boxes(predictions, targets);
  // Leave inference mode, if the caller is in it: its tensors have no gradient, so copies are made.
  const c10::InferenceMode inference_mode(!with_gradient);
  const at::AutoGradMode gradient_mode(with_gradient);
  const auto copy = [&](const at::Tensor& boxes) {
    return boxes.to(device_of(detector), /*non_blocking=*/false, /*copy=*/true);
  };
  const auto [value, gradient] =
      detector.parts().module->loss(copy(predictions).requires_grad_(with_gradient), copy(targets));
  const auto slots = targets.select(-1, 3).count_nonzero().item<int64_t>();  // that are not padding
  return {{value, slots}, with_gradient ? gradient.cpu() : at::Tensor()};
}

// Return float32 [N, 4], a copy.
at::Tensor tensor_of(std::span<const Box> boxes) {
  at::Tensor tensor = at::empty({static_cast<int64_t>(boxes.size()), 4}, at::kFloat);
  std::ranges::copy(boxes, reinterpret_cast<Box*>(tensor.mutable_data_ptr<float>()));
  return tensor;
}

FileDetections detect_one(const Detector& detector, Photo photo, const Thresholds& thresholds) {
  const int64_t width = photo.width;
  const int64_t height = photo.height;
  return {width, height, std::move(detect_photos(detector, {std::move(photo)}, thresholds).front())};
}

}  // namespace

// --- the tensor half ---

std::pair<double, double> checked(const Thresholds& thresholds, const Metadata& metadata) {
  return {checked("score", thresholds.score, metadata.score_threshold),
          checked("iou", thresholds.iou, metadata.iou_threshold)};
}

c10::Device device_of(const Detector& detector) {
  return detector.parts().device;
}

Found detect_tensors(const Detector& detector, const std::vector<Photo>& photos,
                     const Thresholds& thresholds) {
  if (photos.empty()) throw InputError("photos must be at least one, got none");
  const Detector::Parts& parts = detector.parts();
  const c10::InferenceMode inference_mode;
  const Prepared prepared = prepare(*parts.module, parts.device, photos);
  return parts.module->restore(find(parts, prepared.canvases, thresholds), prepared.geometry);
}

Found detect_canvases(const Detector& detector, const at::Tensor& canvases, const Thresholds& thresholds) {
  const Detector::Parts& parts = detector.parts();
  check_canvases(canvases, parts.metadata.reading.canvas);
  const c10::InferenceMode inference_mode;
  return find(parts, canvases.to(parts.device), thresholds);
}

std::vector<std::vector<Detection>> detect_photos(const Detector& detector, const std::vector<Photo>& photos,
                                                  const Thresholds& thresholds) {
  if (photos.empty()) return {};
  return collect(*detector.parts().module, detect_tensors(detector, photos, thresholds));
}

Loss compute_loss(const Detector& detector, const at::Tensor& predictions, const at::Tensor& targets) {
  return loss_of(detector, predictions, targets, /*with_gradient=*/false).loss;
}

LossAndGradient loss_and_gradient(const Detector& detector, const at::Tensor& predictions,
                                  const at::Tensor& targets) {
  return loss_of(detector, predictions, targets, /*with_gradient=*/true);
}

// --- Detector ---

Detector::Detector(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
Detector::Detector(Detector&&) noexcept = default;
Detector& Detector::operator=(Detector&&) noexcept = default;
Detector::~Detector() = default;

Detector Detector::load(const std::filesystem::path& artifact, const LoadOptions& options) {
  return guarded([&] { return Detector(std::make_unique<Parts>(load_module(artifact, options))); });
}

const Metadata& Detector::metadata() const {
  return parts_->metadata;
}

std::vector<Detection> Detector::detect(const ImageView& image, const Thresholds& thresholds,
                                        const std::optional<TileSpec>& tiles) const {
  return guarded_call([&] {
    const Photo photo = to_photo(image, metadata().reading);
    if (tiles) return detect_tiles(*this, photo, *tiles, thresholds);
    return detect_one(*this, photo, thresholds).detections;
  });
}

std::vector<std::vector<Detection>> Detector::detect(std::span<const ImageView> images,
                                                     const Thresholds& thresholds) const {
  return guarded_call([&] {
    std::vector<Photo> photos;
    for (const ImageView& image : images) {
      const std::string name = "images[" + std::to_string(photos.size()) + "]";
      photos.push_back(to_photo(image, metadata().reading, name));
    }
    return detect_photos(*this, photos, thresholds);
  });
}

FileDetections Detector::detect_file(const std::filesystem::path& file, const Thresholds& thresholds) const {
  return guarded_call([&] { return detect_one(*this, read_photo(file, metadata().reading), thresholds); });
}

FileDetections Detector::detect_file(std::span<const uint8_t> file, const Thresholds& thresholds) const {
  return guarded_call([&] { return detect_one(*this, read_photo(file, metadata().reading), thresholds); });
}

Loss Detector::loss(std::span<const Box> predictions, std::span<const Box> targets) const {
  return guarded_call([&] { return compute_loss(*this, tensor_of(predictions), tensor_of(targets)); });
}

void Detector::capture(std::span<const int64_t> batch_sizes, const Thresholds& thresholds) {
  guarded_call([&] {
    const std::vector<int64_t> sizes(batch_sizes.begin(), batch_sizes.end());
    const auto [score, iou] = checked(thresholds, parts_->metadata);
    if (sizes.empty() || std::ranges::min(sizes) < 1) {
      throw InputError("batch_sizes must be at least one size, and none below 1, got " + c10::str(sizes));
    }
    if (!parts_->device.is_cuda()) return;
    const c10::InferenceMode inference_mode;
    // Record with a canvas that the artifact makes from a photograph.
    const Photo dot = Photo::of(at::zeros({1, 1, 1}, at::kByte));
    const at::Tensor canvas = prepare(*parts_->module, parts_->device, {dot}).canvases;
    parts_->graphs = record_graphs(*parts_->module, canvas, sizes, score, iou);
  });
}

}  // namespace lensbox
