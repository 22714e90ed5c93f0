#pragma once

#include <c10/core/Device.h>
#include <lensbox/metadata.h>

#include <functional>

#include "model/methods.h"

namespace lensbox {

// Return whether there is a loss. TorchScript files always have one; files of the other kinds lack a loss of
// the detector's own.
bool has_loss(const Metadata& metadata);

// The methods of a file that computes detect alone, a package or an ONNX file: all other methods are
// Lensbox's own, as the export gives them to a detector that brings none. A loss of the detector's own is not
// there.
//
// The code in the file checks nothing, so canvases other than uint8 [B, c, h, w] on the device, with B from
// 1, are refused.
class DetectOnlyMethods final : public Methods {
 public:
  // Contiguous canvases and thresholds of scores and IoU to the outputs of detect: boxes, scores, counts,
  // labels where there are classes, and the extras in their order. Called from several threads at once.
  using Run = std::function<std::vector<at::Tensor>(const at::Tensor& canvases, double score_threshold,
                                                    double iou_threshold)>;

  DetectOnlyMethods(Run run, const Metadata& metadata, c10::Device device);

  bool has(const std::string& name) const override;
  c10::IValue call(const std::string& name, std::vector<c10::IValue> arguments) const override;

  // Return the schemas of the ops that these methods call.
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
