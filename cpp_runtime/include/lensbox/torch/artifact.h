#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <lensbox/api.h>
#include <lensbox/detection.h>
#include <lensbox/loss.h>
#include <lensbox/torch/found.h>
#include <lensbox/torch/metadata.h>
#include <lensbox/torch/photo.h>
#include <lensbox/trust.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <vector>

namespace lensbox {

class CapturedDetect;
class DetectorModule;

// Checks an artifact and returns its lensbox.json without running anything of it, so this needs no op
// library (an ONNX file needs onnxruntime). Throws ArtifactError if the file is absent, no artifact, damaged
// in any byte that matters, has no sound lensbox.json or one of a newer format, or has code that is not
// trusted.
// docs/artifact.md has the rules.
//
// public_key: a PEM file with an Ed25519 key. Then the artifact must be signed by its owner, in
// <artifact>.sig, or is refused before anything else of it is looked at.
LENSBOX_API Metadata read_metadata(const std::filesystem::path& artifact, Trust trust = Trust::kCheckCode,
                                   const std::optional<std::filesystem::path>& public_key = std::nullopt);

// Milliseconds that the parts of Artifact::load took.
struct LoadTimes {
  double checking;    // the file read and checked, and an ONNX file opened
  double op_library;  // opened, and the ops looked up in it
  double module;      // torch's part: the code compiled, the weights on the device
};

struct LossAndGradient {
  Loss loss;
  at::Tensor gradient;  // with respect to the predictions, of their shape and type, on the CPU
};

// A detector loaded from a file. All the mathematics, from letterboxing to NMS and back to the pixels of the
// image, is in the artifact; this class only calls its methods.
//
// TorchScript modules may be called from several threads at once, and so may the const methods of this class.
class LENSBOX_API Artifact {
 public:
  // Reads the file once, checks it as read_metadata does, opens the op library (see find_op_library), those
  // that the artifact carries if it is trusted, and loads what was checked onto `device`. An ONNX file runs
  // on the CPU alone, in as many threads as libtorch has when it is loaded. Throws ArtifactError, and
  // DeviceError if the file is not for that kind of device.
  //
  // On a GPU, its methods run without TF32, so that the GPU finds what the CPU finds, or with TF32 if
  // metadata().precision says so. torch's switches for that belong to the process: they are as they were once
  // no method runs, and methods of artifacts of the one kind wait for those of the other.
  static Artifact load(const std::filesystem::path& path, c10::Device device,
                       const std::optional<std::filesystem::path>& op_library = std::nullopt,
                       Trust trust = Trust::kCheckCode,
                       const std::optional<std::filesystem::path>& public_key = std::nullopt);

  const Metadata& metadata() const { return metadata_; }
  c10::Device device() const { return device_; }
  const LoadTimes& load_times() const { return load_times_; }

  // Records what the method detect does on the GPU, for each of these batch sizes, as a CUDA graph: replayed,
  // it costs one launch in place of hundreds, with the same answers. A batch is filled up to the next size;
  // larger ones, and those with other thresholds, run as before. On the CPU this changes nothing. Each size
  // takes memory for its canvases and results, and the largest for what lies between. Graphs of an earlier
  // call are dropped. Throws InputError for a size below 1, DeviceError if the library was built without
  // CUDA, ArtifactError if the method fails. No other thread may use the artifact meanwhile.
  void capture(const std::vector<int64_t>& batch_sizes, double score_threshold, double iou_threshold);

  // Faces (or whatever the artifact detects) in a batch of photographs, which read_photo reads as
  // metadata().reading says: for each photograph, best first, in its own pixels. Thresholds in 0..1.
  // Throws InputError for a photograph that breaks the rules of Photo, or shows a part or another scale to an
  // artifact of format 1; ArtifactError if a method of the artifact fails.
  std::vector<std::vector<Detection>> detect(const std::vector<Photo>& photos, double score_threshold,
                                             double iou_threshold) const;

  // The same for one whole image: uint8 [C, H, W], C = 1, 3 or 4, on any device.
  std::vector<Detection> detect(const at::Tensor& image, double score_threshold, double iou_threshold) const;

  // The same with results as tensors on device(), which nothing waits for: on a GPU they are there for what
  // the current stream does next. They are made in inference mode, so autograd does not take them. Throws
  // likewise.
  Found detect_tensors(const std::vector<Photo>& photos, double score_threshold, double iou_threshold) const;

  // The same for canvases, uint8 [B, c, h, w] as metadata().reading.canvas says, such as letterbox makes;
  // boxes in pixels of the canvases. They are copied to device() if they do not lie there. Throws InputError
  // for others, ArtifactError.
  Found detect_canvases(const at::Tensor& canvases, double score_threshold, double iou_threshold) const;

  // The artifact's loss, without gradients.
  // predictions, targets: float32 or float64 of one shape, [N, 4] or [B, N, 4], boxes as xyxy in pixels.
  // Throws InputError if the shapes do not fit, ArtifactError if the artifact has no loss or it fails.
  Loss loss(const at::Tensor& predictions, const at::Tensor& targets) const;

  // The same with its gradient. Throws as loss does, and ArtifactError if the loss has no gradient.
  LossAndGradient loss_and_gradient(const at::Tensor& predictions, const at::Tensor& targets) const;

 private:
  Artifact(c10::Device device, Metadata metadata, std::shared_ptr<const DetectorModule> module,
           const LoadTimes& load_times);

  // What is found in canvases on device(), with a graph where one was recorded for such a batch.
  Found find(const at::Tensor& canvases, double score_threshold, double iou_threshold) const;

  c10::Device device_;
  Metadata metadata_;
  LoadTimes load_times_;
  std::shared_ptr<const DetectorModule> module_;
  std::shared_ptr<const CapturedDetect> captured_;  // none unless asked for
};

}  // namespace lensbox
