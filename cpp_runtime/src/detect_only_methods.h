#pragma once

#include <c10/core/Device.h>
#include <lensbox/torch/metadata.h>

#include <functional>

#include "methods.h"

namespace lensbox {

// Whether there is a loss. TorchScript files always have one; where it is the detector's own, the other files
// do without.
bool has_loss(const Metadata& metadata);

// Those of an artifact whose file computes detect alone, as packages and ONNX files do: all others are
// Lensbox's own, as the export gives them to a detector that brings none itself. A loss of the detector's own
// is not there.
//
// What the file computes with checks nothing, so canvases must be uint8 [B, c, h, w] on the device, with B
// from 1: others are refused.
class DetectOnlyMethods final : public Methods {
 public:
  // Contiguous canvases and thresholds of scores and IoU to the outputs of detect: boxes, scores, counts,
  // labels where there are classes, and the extras in their order. Called from several threads at once.
  using Run = std::function<std::vector<at::Tensor>(const at::Tensor& canvases, double score_threshold,
                                                    double iou_threshold)>;

  DetectOnlyMethods(Run run, const Metadata& metadata, c10::Device device);

  bool has(const std::string& name) const override;
  c10::IValue call(const std::string& name, std::vector<c10::IValue> arguments) const override;

  // The schemas of the ops that they call.
  static std::vector<std::string> ops(const Metadata& metadata);

 private:
  std::vector<at::Tensor> detect(const at::Tensor& canvases, double score_threshold,
                                 double iou_threshold) const;
  c10::IValue detect_named(const std::vector<at::Tensor>& found) const;

  Run run_;
  c10::Device device_;
  Canvas canvas_;
  std::vector<std::string> methods_;
  std::vector<std::string> outputs_;
};

}  // namespace lensbox
