#pragma once

#include <ATen/core/Tensor.h>
#include <lensbox/detection.h>
#include <lensbox/torch/tensors.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "model/methods.h"

namespace lensbox {

struct Prepared {
  at::Tensor canvases;  // uint8 [B, c, h, w]
  at::Tensor geometry;  // float32 [B, 6]
};

// The outputs of a detector beside boxes and scores.
struct Outputs {
  int64_t classes = 0;
  std::vector<Extra> extras = {};
};

// The typed methods of an artifact, with checked results. docs/artifact.md has the methods.
//
// Every method throws ArtifactError with the path if the artifact has no such method, or the method fails or
// returns a wrong result.
class DetectorModule {
 public:
  DetectorModule(std::string path, std::shared_ptr<const Methods> methods, Outputs outputs = {});

  const Outputs& outputs() const { return outputs_; }

  // windows: float32 [B, 6]; none if all images are whole photographs.
  Prepared preprocess(const std::vector<at::Tensor>& images, const std::optional<at::Tensor>& windows) const;

  // The method detect, or detect_named of a detector with labels or extras.
  Found detect(const at::Tensor& canvases, double score_threshold, double iou_threshold) const;

  // boxes [B, K, 4], geometry [B, 6].
  at::Tensor restore(const at::Tensor& boxes, const at::Tensor& geometry) const;

  // points [B, K, ..., 2], geometry [B, 6].
  at::Tensor restore_points(const at::Tensor& points, const at::Tensor& geometry) const;

  at::Tensor loss(const at::Tensor& predictions, const at::Tensor& targets) const;

  // Return the value of a result of loss.
  double value_of(const at::Tensor& loss) const;
  // Return its gradient with respect to the predictions.
  at::Tensor gradient(const at::Tensor& loss, const at::Tensor& predictions) const;

  [[noreturn]] void fail(const std::string& reason) const;

 private:
  c10::IValue call(const char* method, std::vector<c10::IValue> arguments) const;
  std::vector<at::Tensor> call_for_tensors(const char* method, std::vector<c10::IValue> arguments,
                                           size_t count) const;
  Found call_detect_named(const at::Tensor& canvases, double score_threshold, double iou_threshold) const;
  void check_further_outputs(const Found& found) const;

  std::string path_;
  std::shared_ptr<const Methods> methods_;
  Outputs outputs_;
};

}  // namespace lensbox
