#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <lensbox/detection.h>
#include <lensbox/metadata.h>
#include <torch/csrc/jit/api/module.h>

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace lensbox {

struct Loss {
  double value;
  int64_t slots;  // target slots that count, that is, are not padding (y2 != 0)
};

// A detector loaded from a file. All the mathematics, from letterboxing to NMS and back to the pixels of the
// image, is in the artifact; this class only calls its methods.
//
// TorchScript modules may be called from several threads at once, and so may this class.
class Artifact {
 public:
  // Opens the op library (see find_op_library) and then the artifact, on `device`. If that is a GPU, turns
  // TF32 off in the whole process, so that the GPU finds what the CPU finds. Throws ArtifactError.
  static Artifact load(const std::filesystem::path& path, c10::Device device,
                       const std::optional<std::filesystem::path>& op_library = std::nullopt);

  const Metadata& metadata() const { return metadata_; }
  c10::Device device() const { return device_; }

  // Faces (or whatever the artifact detects) in one image, best first, in its own pixels.
  // image: uint8 [C, H, W], C = 1, 3 or 4, on any device. Thresholds in 0..1.
  // Throws ArtifactError if a method of the artifact fails.
  std::vector<Detection> detect(const at::Tensor& image, double score_threshold, double iou_threshold) const;

  // The artifact's loss, without gradients.
  // predictions, targets: float32 or float64 of one shape, [N, 4] or [B, N, 4], boxes as xyxy in pixels.
  // Throws InputError if the shapes do not fit, ArtifactError if the artifact has no loss or it fails.
  Loss loss(const at::Tensor& predictions, const at::Tensor& targets) const;

 private:
  Artifact(std::filesystem::path path, c10::Device device, Metadata metadata, torch::jit::Module module);

  [[noreturn]] void fail(const std::string& reason) const;
  int64_t found_in_one_canvas(const std::vector<at::Tensor>& found) const;
  c10::IValue call(const char* method, std::vector<c10::IValue> arguments) const;
  std::vector<at::Tensor> call_for_tensors(const char* method, std::vector<c10::IValue> arguments,
                                           size_t count) const;

  std::filesystem::path path_;
  c10::Device device_;
  Metadata metadata_;
  torch::jit::Module module_;
};

}  // namespace lensbox
