#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "backends/backend.h"
#include "backends/canvases.h"
#include "backends/onnx_session.h"

namespace lensbox {

// An ONNX model in onnxruntime, on the CPU. The steps around detect are Lensbox's own.
class OnnxBackend : public Backend {
 public:
  OnnxBackend(std::filesystem::path artifact, const ArtifactFile& file, int threads);

  std::string device() const override { return "cpu"; }
  PendingBatch detect(const std::vector<Source>& sources, double score, double iou) const override;
  Loss loss(std::span<const Box> predictions, std::span<const Box> targets) const override;
  void capture(const std::vector<int64_t>& /*batch_sizes*/, double /*score*/, double /*iou*/) override {}
  DeviceReader device_reader(const Reading& reading, Decode decode, size_t batch_size) const override;

  // Detect in canvases, uint8 [B, c, h, w], in batches of the model's one size if it has one: the last one is
  // filled with black. Boxes are in pixels of the canvases.
  FoundNumbers find(const uint8_t* canvases, int64_t count, double score, double iou) const;

  // Compute Lensbox's loss, masked_giou_loss, of `count` boxes: float64 if `in_double`, else float32.
  // gradient: for the derivatives with respect to the predictions, of their type, or nullptr.
  double loss(const void* predictions, const void* targets, int64_t count, bool in_double,
              void* gradient) const;

 private:
  // Call what a method of the artifact is, by its name.
  template <class Function>
  auto method(const std::string& name, Function function) const;

  // Convert boxes and points in canvases to pixels of the photographs.
  void restore(FoundNumbers& found, const std::vector<Geometry>& geometry) const;

  std::filesystem::path artifact_;
  std::vector<std::string> methods_;
  Canvas canvas_;
  int64_t batch_;  // the one size of batches; 0: any
  Outputs outputs_;
  int threads_;
  OnnxSession session_;
};

}  // namespace lensbox
