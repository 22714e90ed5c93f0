#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <caffe2/serialize/read_adapter_interface.h>
#include <lensbox/error.h>
#include <lensbox/torch/artifact.h>
#include <lensbox/torch/op_library.h>
#include <torch/csrc/jit/serialization/import.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "artifact_file.h"
#include "captured_detect.h"
#include "carried_ops.h"
#include "compiled_detect.h"
#include "compiled_for.h"
#include "detect_batch.h"
#include "detect_only_methods.h"
#include "detector_module.h"
#include "gpu_float32.h"
#include "onnx_session.h"
#include "script_methods.h"
#include "torch_error.h"
#include "torch_version.h"

namespace lensbox {
namespace {

// Gives torch the bytes that were checked.
class BytesReader : public caffe2::serialize::ReadAdapterInterface {
 public:
  explicit BytesReader(std::shared_ptr<const std::string> bytes) : bytes_(std::move(bytes)) {}

  size_t size() const override { return bytes_->size(); }

  size_t read(uint64_t position, void* buffer, size_t count, const char* /*what*/) const override {
    if (position >= bytes_->size()) return 0;
    const size_t available = std::min<size_t>(count, bytes_->size() - position);
    std::memcpy(buffer, bytes_->data() + position, available);
    return available;
  }

 private:
  std::shared_ptr<const std::string> bytes_;
};

torch::jit::Module load_module(const std::filesystem::path& path, const ArtifactFile& file,
                               c10::Device device) {
  try {
    torch::jit::Module module = torch::jit::load(std::make_shared<BytesReader>(file.bytes), device);
    module.eval();
    return module;
  } catch (const std::exception& error) {
    throw ArtifactError("artifact " + path.string() + ": cannot be loaded. It was written by torch " +
                        file.metadata.torch_version + ", this program has " + std::string(kTorchDescription) +
                        ". torch says:\n" + torch_message(error));
  }
}

std::shared_ptr<const Methods> load_methods(const std::filesystem::path& path, const ArtifactFile& file,
                                            c10::Device device) {
  if (file.metadata.file_kind == FileKind::kTorchScript) {
    return std::make_shared<ScriptMethods>(load_module(path, file, device));
  }
  DetectOnlyMethods::Run run;
  if (file.metadata.file_kind == FileKind::kOnnx) {
    run = [session = file.session](auto&&... arguments) { return session->run(arguments...); };
  } else {
    const auto compiled = std::make_shared<const CompiledDetect>(path, *file.bytes, device);
    run = [compiled](auto&&... arguments) { return compiled->run(arguments...); };
  }
  return std::make_shared<DetectOnlyMethods>(std::move(run), file.metadata, device);
}

// Of a package, whose code is for one kind of machine and cannot be checked.
void require_trusted_machine(const std::filesystem::path& path, const Metadata& metadata, c10::Device device,
                             Trust trust) {
  if (trust != Trust::kTrustCode) {
    throw ArtifactError(
        "artifact " + path.string() +
        ": holds machine code, which no check can judge and which runs with all rights of this "
        "program. If you know who wrote it, load it as trusted (lensbox_runner: --trusted).");
  }
  require_machine(path, *metadata.compiled, device);
}

// ONNX files do not list what Lensbox calls around them.
std::vector<std::string> ops_of(const Metadata& metadata) {
  return metadata.file_kind == FileKind::kOnnx ? DetectOnlyMethods::ops(metadata) : metadata.ops;
}

void require_ops_of(const Metadata& metadata, c10::Device device,
                    const std::optional<std::filesystem::path>& library, Trust trust) {
  try {
    require_ops(ops_of(metadata), device, library);
  } catch (const ArtifactError& error) {
    if (trust == Trust::kTrustCode || metadata.libraries.empty()) throw;
    std::string carried;
    for (const CarriedLibrary& each : metadata.libraries) {
      carried += (carried.empty() ? "" : ", ") + each.name;
    }
    throw ArtifactError(error.what() + (" The artifact carries " + carried) +
                        ", which is opened only if you load it as trusted (lensbox_runner: --trusted).");
  }
}

GpuFloat32 float32_of(const Metadata& metadata, c10::Device device) {
  if (!device.is_cuda()) return GpuFloat32::kUntouched;
  const bool tf32 = metadata.precision && metadata.precision->dtype == Precision::Dtype::kTf32;
  return tf32 ? GpuFloat32::kTf32 : GpuFloat32::kFull;
}

class Stopwatch {
 public:
  // Milliseconds since the last lap.
  double lap() {
    const auto now = std::chrono::steady_clock::now();
    return std::chrono::duration<double, std::milli>(now - std::exchange(last_, now)).count();
  }

 private:
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

std::string shape(const at::Tensor& tensor) {
  return c10::str(tensor.sizes());
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

// Target slots that are not padding.
int64_t slots(const at::Tensor& targets) {
  return targets.select(-1, 3).count_nonzero().item<int64_t>();
}

// canvas: none of an artifact of format 1, which does not say.
void check_canvases(const at::Tensor& canvases, const std::optional<Canvas>& canvas) {
  const bool is_batch = canvases.dim() == 4 && canvases.numel() > 0;
  const bool fits =
      is_batch && (!canvas || canvases.sizes().slice(1) ==
                                  at::IntArrayRef{canvas->channels, canvas->height, canvas->width});
  if (fits && canvases.scalar_type() == at::kByte) return;
  const std::string rest =
      canvas ? c10::str(canvas->channels, ", ", canvas->height, ", ", canvas->width) : "C, H, W";
  throw InputError("canvases must be uint8 [B, " + rest + "] with B at least 1, got " +
                   c10::toString(canvases.scalar_type()) + " " + shape(canvases));
}

}  // namespace

Artifact::Artifact(c10::Device device, Metadata metadata, std::shared_ptr<const DetectorModule> module,
                   const LoadTimes& load_times)
    : device_(device), metadata_(std::move(metadata)), load_times_(load_times), module_(std::move(module)) {}

Artifact Artifact::load(const std::filesystem::path& path, c10::Device device,
                        const std::optional<std::filesystem::path>& op_library, Trust trust,
                        const std::optional<std::filesystem::path>& public_key) {
  Stopwatch stopwatch;
  LoadTimes times{};
  ArtifactFile file = read_artifact_file(path, trust, public_key);
  const Metadata& metadata = file.metadata;
  if (metadata.file_kind == FileKind::kPackage) require_trusted_machine(path, metadata, device, trust);
  if (metadata.file_kind == FileKind::kOnnx && !device.is_cpu()) {
    throw DeviceError("device must be cpu for an ONNX file, got " + device.str() + " for " + path.string());
  }
  times.checking = stopwatch.lap();
  const auto library = find_op_library(op_library);
  if (library) load_op_library(*library);
  if (trust == Trust::kTrustCode) {
    open_carried_libraries(path, metadata.libraries, file.libraries, metadata.ops);
  }
  require_ops_of(metadata, device, library, trust);
  times.op_library = stopwatch.lap();
  const Outputs outputs{static_cast<int64_t>(metadata.classes.size()), metadata.extras};
  auto module = std::make_shared<DetectorModule>(path.string(), load_methods(path, file, device), outputs,
                                                 float32_of(metadata, device));
  times.module = stopwatch.lap();
  return {device, std::move(file.metadata), std::move(module), times};
}

void Artifact::capture(const std::vector<int64_t>& batch_sizes, double score_threshold,
                       double iou_threshold) {
  const int64_t least = batch_sizes.empty() ? 0 : std::ranges::min(batch_sizes);
  if (least < 1) {
    throw InputError("batch_sizes must be at least one size, and none below 1, got " + c10::str(batch_sizes));
  }
  if (!device_.is_cuda()) return;
  const c10::InferenceMode inference_mode;
  // The canvas that the artifact makes of any photograph.
  const Photo dot = Photo::of(at::zeros({1, 1, 1}, at::kByte));
  const at::Tensor canvas = prepare(*module_, metadata_, device_, std::vector{dot}).canvases;
  captured_ = std::make_shared<CapturedDetect>(
      batch_sizes, score_threshold, iou_threshold, canvas,
      record_detect_graphs(*module_, canvas, batch_sizes, score_threshold, iou_threshold));
}

Found Artifact::find(const at::Tensor& canvases, double score_threshold, double iou_threshold) const {
  if (captured_) {
    if (auto found = captured_->run(canvases, score_threshold, iou_threshold)) return *std::move(found);
  }
  return module_->detect(canvases, score_threshold, iou_threshold);
}

Found Artifact::detect_tensors(const std::vector<Photo>& photos, double score_threshold,
                               double iou_threshold) const {
  if (photos.empty()) throw InputError("photos must be at least one, got none");
  const c10::InferenceMode inference_mode;
  const Prepared prepared = prepare(*module_, metadata_, device_, photos);
  return restore(*module_, metadata_, find(prepared.canvases, score_threshold, iou_threshold),
                 prepared.geometry);
}

Found Artifact::detect_canvases(const at::Tensor& canvases, double score_threshold,
                                double iou_threshold) const {
  check_canvases(canvases, metadata_.reading.canvas);
  const c10::InferenceMode inference_mode;
  return find(canvases.to(device_), score_threshold, iou_threshold);
}

std::vector<std::vector<Detection>> Artifact::detect(const std::vector<Photo>& photos, double score_threshold,
                                                     double iou_threshold) const {
  if (photos.empty()) return {};
  const c10::InferenceMode inference_mode;
  return collect(*module_, detect_tensors(photos, score_threshold, iou_threshold));
}

std::vector<Detection> Artifact::detect(const at::Tensor& image, double score_threshold,
                                        double iou_threshold) const {
  return detect(std::vector{Photo::of(image)}, score_threshold, iou_threshold).front();
}

Loss Artifact::loss(const at::Tensor& predictions, const at::Tensor& targets) const {
  check_boxes(predictions, targets);
  const c10::InferenceMode inference_mode;
  const at::Tensor value = module_->loss(predictions.to(device_), targets.to(device_));
  return {module_->value_of(value), slots(targets)};
}

LossAndGradient Artifact::loss_and_gradient(const at::Tensor& predictions, const at::Tensor& targets) const {
  check_boxes(predictions, targets);
  // The caller may be in inference mode, whose tensors have no gradient.
  const c10::InferenceMode no_inference_mode(false);
  const at::AutoGradMode with_gradient(true);
  const at::Tensor leaf = predictions.to(device_, /*non_blocking=*/false, /*copy=*/true).requires_grad_();
  const at::Tensor value = module_->loss(leaf, targets.to(device_).clone());
  return {{module_->value_of(value), slots(targets)}, module_->gradient(value, leaf).cpu()};
}

}  // namespace lensbox
