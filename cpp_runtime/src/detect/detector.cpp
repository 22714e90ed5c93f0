#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/InferenceMode.h>
#include <caffe2/serialize/read_adapter_interface.h>
#include <lensbox/torch/tensors.h>
#include <torch/csrc/jit/serialization/import.h>

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

#include "detect/detect_batch.h"
#include "detect/self_test.h"
#include "detect/tiles.h"
#include "file/artifact_file.h"
#include "file/errors.h"
#include "images/decoders.h"
#include "model/aoti.h"
#include "model/carried_ops.h"
#include "model/detector_module.h"
#include "model/graphs.h"
#include "model/machine.h"
#include "model/methods.h"
#include "model/onnx_session.h"
#include "model/op_library.h"

namespace lensbox {

struct Detector::Parts {
  c10::Device device;
  Metadata metadata;
  std::shared_ptr<const DetectorModule> module;
  std::shared_ptr<const CapturedDetect> captured = nullptr;  // none unless asked for
};

namespace {

// --- loading ---

torch::jit::Module load_script(const std::filesystem::path& path, const ArtifactFile& file,
                               c10::Device device) {
  try {
    torch::jit::Module module = torch::jit::load(reader_of(file.bytes), device);
    module.eval();
    return module;
  } catch (const std::exception& error) {
    fail_artifact(path, "cannot be loaded. It was written by torch " + file.metadata.torch_version +
                            ", this program has " + kTorchDescription + ". torch says:\n" +
                            torch_message(error));
  }
}

// Open the model of an ONNX file; return null for other files.
DetectCode open_session(const std::filesystem::path& path, const ArtifactFile& file, c10::Device device) {
  if (file.metadata.file_kind != FileKind::kOnnx) return nullptr;
  if (!device.is_cpu()) {
    throw DeviceError("device must be cpu for an ONNX file, got " + device.str() + " for " + path.string());
  }
  return open_onnx_session(path, *file.bytes, file.metadata, at::get_num_threads());
}

std::shared_ptr<const Methods> load_methods(const std::filesystem::path& path, const ArtifactFile& file,
                                            DetectCode detect, c10::Device device) {
  if (file.metadata.file_kind == FileKind::kTorchScript) {
    return std::make_shared<ScriptMethods>(load_script(path, file, device));
  }
  if (!detect) detect = load_package(path, *file.bytes, device);
  return std::make_shared<DetectOnlyMethods>(std::move(detect), file.metadata, device);
}

void require_ops_of(const ArtifactFile& file, c10::Device device,
                    const std::optional<std::filesystem::path>& library) {
  const Metadata& metadata = file.metadata;
  try {
    // ONNX files do not list the ops that Lensbox calls around them.
    require_ops(metadata.file_kind == FileKind::kOnnx ? DetectOnlyMethods::ops(metadata) : metadata.ops,
                device, library);
  } catch (const ArtifactError& error) {
    if (file.is_verified || metadata.libraries.empty()) throw;
    std::string carried;
    for (const CarriedLibrary& each : metadata.libraries) {
      carried += (carried.empty() ? "" : ", ") + each.name;
    }
    throw ArtifactError(error.what() + (" The artifact carries " + carried) +
                        ", which is opened only if a public key verifies the file "
                        "(LoadOptions::public_key, lensbox_runner: --public-key).");
  }
}

GpuFloat32 float32_of(const Metadata& metadata, c10::Device device) {
  if (!device.is_cuda()) return GpuFloat32::kUntouched;
  const bool tf32 = metadata.precision && metadata.precision->dtype == Precision::Dtype::kTf32;
  return tf32 ? GpuFloat32::kTf32 : GpuFloat32::kFull;
}

std::unique_ptr<Detector::Parts> load_parts(const std::filesystem::path& path, const LoadOptions& options) {
  const c10::Device device = parse_device(options.device);
  ArtifactFile file = read_artifact_file(path, options.public_key);
  if (file.metadata.compiled) require_machine(path, *file.metadata.compiled, device);
  const auto session = open_session(path, file, device);
  const auto library = find_op_library(options.op_library);
  if (library) load_op_library(*library);
  if (file.is_verified) {
    open_carried_libraries(path, file.metadata.libraries, file.libraries, file.metadata.ops);
  }
  require_ops_of(file, device, library);
  const Outputs outputs{static_cast<int64_t>(file.metadata.classes.size()), file.metadata.extras};
  auto module = std::make_shared<DetectorModule>(path.string(), load_methods(path, file, session, device),
                                                 outputs, float32_of(file.metadata, device));
  return std::make_unique<Detector::Parts>(
      Detector::Parts{device, std::move(file.metadata), std::move(module)});
}

// --- detecting ---

double checked(const char* name, const std::optional<double>& given, double by_default) {
  const double value = given.value_or(by_default);
  if (value >= 0 && value <= 1) return value;
  throw InputError(std::string("thresholds.") + name + " must be a number from 0 to 1, got " +
                   std::to_string(value));
}

double score_of(const Thresholds& thresholds, const Metadata& metadata) {
  return checked("score", thresholds.score, metadata.score_threshold);
}

double iou_of(const Thresholds& thresholds, const Metadata& metadata) {
  return checked("iou", thresholds.iou, metadata.iou_threshold);
}

// Detect in canvases on the device, with a graph if one was recorded for such a batch.
Found find(const Detector::Parts& parts, const at::Tensor& canvases, const Thresholds& thresholds) {
  const double score = score_of(thresholds, parts.metadata);
  const double iou = iou_of(thresholds, parts.metadata);
  if (parts.captured) {
    if (auto found = parts.captured->run(canvases, score, iou)) return *std::move(found);
  }
  return parts.module->detect(canvases, score, iou);
}

std::string shape(const at::Tensor& tensor) {
  return c10::str(tensor.sizes());
}

void check_canvases(const at::Tensor& canvases, const Canvas& canvas) {
  const bool fits =
      canvases.dim() == 4 && canvases.numel() > 0 &&
      canvases.sizes().slice(1) == at::IntArrayRef{canvas.channels, canvas.height, canvas.width};
  if (fits && canvases.scalar_type() == at::kByte) return;
  throw InputError(c10::str("canvases must be uint8 [B, ", canvas.channels, ", ", canvas.height, ", ",
                            canvas.width, "] with B at least 1, got ", c10::toString(canvases.scalar_type()),
                            " ", shape(canvases)));
}

void check_boxes(const at::Tensor& predictions, const at::Tensor& targets) {
  if (predictions.sizes() != targets.sizes()) {
    throw InputError("predictions and targets must have the same shape, got " + shape(predictions) + " and " +
                     shape(targets));
  }
  if (predictions.dim() < 2 || predictions.size(-1) != 4) {
    throw InputError("predictions must be [N, 4] or [B, N, 4], got " + shape(predictions));
  }
}

// Count the target slots that are not padding.
int64_t slots(const at::Tensor& targets) {
  return targets.select(-1, 3).count_nonzero().item<int64_t>();
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

c10::Device device_of(const Detector& detector) {
  return detector.parts().device;
}

Found detect_tensors(const Detector& detector, const std::vector<Photo>& photos,
                     const Thresholds& thresholds) {
  if (photos.empty()) throw InputError("photos must be at least one, got none");
  const Detector::Parts& parts = detector.parts();
  const c10::InferenceMode inference_mode;
  const Prepared prepared = prepare(*parts.module, parts.device, photos);
  return restore(*parts.module, find(parts, prepared.canvases, thresholds), prepared.geometry);
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
  const c10::InferenceMode inference_mode;
  return collect(*detector.parts().module, detect_tensors(detector, photos, thresholds));
}

std::vector<Detection> detect_tiles(const Detector& detector, const Photo& photo, const TileSpec& tiles,
                                    const Thresholds& thresholds) {
  check_tiles(tiles);
  return detect_views(detector, cut_into_tiles(photo, detector.metadata().reading.canvas, tiles), thresholds);
}

std::vector<Detection> detect_views(const Detector& detector, const std::vector<Photo>& views,
                                    const Thresholds& thresholds) {
  const Detector::Parts& parts = detector.parts();
  const size_t together = parts.device.is_cuda() ? 64 : 8;  // as largest_batch of runtime/device.py
  std::vector<std::vector<Detection>> found;
  for (size_t first = 0; first < views.size(); first += together) {
    const auto begin = views.begin() + static_cast<int64_t>(first);
    const auto end = begin + static_cast<int64_t>(std::min(together, views.size() - first));
    std::ranges::move(detect_photos(detector, {begin, end}, thresholds), std::back_inserter(found));
  }
  return merge_tiles(std::move(found), views, iou_of(thresholds, parts.metadata));
}

Loss compute_loss(const Detector& detector, const at::Tensor& predictions, const at::Tensor& targets) {
  check_boxes(predictions, targets);
  const auto& [device, metadata, module, captured] = detector.parts();
  const c10::InferenceMode inference_mode;
  const at::Tensor value = module->loss(predictions.to(device), targets.to(device));
  return {module->value_of(value), slots(targets)};
}

LossAndGradient loss_and_gradient(const Detector& detector, const at::Tensor& predictions,
                                  const at::Tensor& targets) {
  check_boxes(predictions, targets);
  const auto& [device, metadata, module, captured] = detector.parts();
  // The caller may be in inference mode, whose tensors have no gradient.
  const c10::InferenceMode no_inference_mode(false);
  const at::AutoGradMode with_gradient(true);
  const at::Tensor leaf = predictions.to(device, /*non_blocking=*/false, /*copy=*/true).requires_grad_();
  const at::Tensor value = module->loss(leaf, targets.to(device).clone());
  return {{module->value_of(value), slots(targets)}, module->gradient(value, leaf).cpu()};
}

// --- Detector ---

Detector::Detector(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
Detector::Detector(Detector&&) noexcept = default;
Detector& Detector::operator=(Detector&&) noexcept = default;
Detector::~Detector() = default;

Detector Detector::load(const std::filesystem::path& artifact, const LoadOptions& options) {
  return guarded([&] { return Detector(load_parts(artifact, options)); });
}

const Metadata& Detector::metadata() const {
  return parts_->metadata;
}

std::vector<Detection> Detector::detect(const ImageView& image, const Thresholds& thresholds,
                                        const std::optional<TileSpec>& tiles) const {
  return guarded([&] {
    const Photo photo = to_photo(image, metadata().reading);
    if (tiles) return detect_tiles(*this, photo, *tiles, thresholds);
    return detect_one(*this, photo, thresholds).detections;
  });
}

std::vector<std::vector<Detection>> Detector::detect(std::span<const ImageView> images,
                                                     const Thresholds& thresholds) const {
  return guarded([&] {
    std::vector<Photo> photos;
    for (const ImageView& image : images) {
      const std::string name = "images[" + std::to_string(photos.size()) + "]";
      photos.push_back(read_frame(image, metadata().reading, name));
    }
    return detect_photos(*this, photos, thresholds);
  });
}

FileDetections Detector::detect_file(const std::filesystem::path& file, const Thresholds& thresholds) const {
  return guarded([&] { return detect_one(*this, read_photo(file, metadata().reading), thresholds); });
}

FileDetections Detector::detect_file(std::span<const uint8_t> file, const Thresholds& thresholds) const {
  return guarded([&] { return detect_one(*this, read_photo(file, metadata().reading), thresholds); });
}

Loss Detector::loss(std::span<const Box> predictions, std::span<const Box> targets) const {
  return guarded([&] { return compute_loss(*this, tensor_of(predictions), tensor_of(targets)); });
}

SelfTestReport Detector::self_test() const {
  return guarded([&] { return run_self_test(*this); });
}

void Detector::capture(std::span<const int64_t> batch_sizes, const Thresholds& thresholds) {
  guarded([&] {
    const std::vector<int64_t> sizes(batch_sizes.begin(), batch_sizes.end());
    const double score = score_of(thresholds, parts_->metadata);
    const double iou = iou_of(thresholds, parts_->metadata);
    if (sizes.empty() || std::ranges::min(sizes) < 1) {
      throw InputError("batch_sizes must be at least one size, and none below 1, got " + c10::str(sizes));
    }
    if (!parts_->device.is_cuda()) return;
    const c10::InferenceMode inference_mode;
    // The canvas that the artifact makes of any photograph.
    const Photo dot = Photo::of(at::zeros({1, 1, 1}, at::kByte));
    const at::Tensor canvas = prepare(*parts_->module, parts_->device, {dot}).canvases;
    parts_->captured = std::make_shared<CapturedDetect>(
        sizes, score, iou, canvas, record_detect_graphs(*parts_->module, canvas, sizes, score, iou));
  });
}

}  // namespace lensbox
