#pragma once

#include <ATen/core/ivalue.h>
#include <lensbox/detection.h>
#include <lensbox/torch/tensors.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace lensbox {

struct Prepared {
  at::Tensor canvases;  // uint8 [B, c, h, w]
  at::Tensor geometry;  // float32 [B, 6]
};

// The outputs of a detector beside boxes and scores.
struct Outputs {
  int64_t classes = 0;
  std::vector<Extra> extras = {};

  // Return the names of the outputs of detect: boxes, scores, counts, labels if there are classes, extras.
  std::vector<std::string> names() const;
};

using Tensors = std::vector<at::Tensor>;

// The typed methods of an artifact, whatever the kind of its file, with checked results: docs/artifact.md has
// the methods. Thread-safe.
//
// Every method throws ArtifactError with the path if the artifact has no such method, or the method fails or
// returns a wrong result.
class DetectorModule {
 public:
  DetectorModule(std::string path, Outputs outputs) : path_(std::move(path)), outputs_(std::move(outputs)) {}
  virtual ~DetectorModule() = default;

  const Outputs& outputs() const { return outputs_; }

  // windows: float32 [B, 6]; none if all images are whole photographs.
  Prepared preprocess(const Tensors& images, const std::optional<at::Tensor>& windows) const;

  // The method detect, or detect_named of a detector with labels or extras.
  Found detect(const at::Tensor& canvases, double score_threshold, double iou_threshold) const;

  // boxes [B, K, 4], geometry [B, 6].
  at::Tensor restore(const at::Tensor& boxes, const at::Tensor& geometry) const;

  // points [B, K, ..., 2], geometry [B, 6].
  at::Tensor restore_points(const at::Tensor& points, const at::Tensor& geometry) const;

  // Return the loss and, if the predictions require a gradient, its gradient with respect to them.
  std::pair<double, at::Tensor> loss(const at::Tensor& predictions, const at::Tensor& targets) const;

  [[noreturn]] void fail(const std::string& reason) const;

 private:
  virtual bool has(const std::string& method) const = 0;

  // Call an existing method, and return its tensors; of detect_named in the order of Outputs::names, of loss
  // also the gradient, if the file computes it. Exceptions of the method pass through.
  virtual Tensors call(const std::string& method, std::vector<c10::IValue> arguments) const = 0;

  // Call a method that returns `count` tensors, or more if `or_more`.
  Tensors results(const std::string& method, std::vector<c10::IValue> arguments, size_t count,
                  bool or_more = false) const;
  at::Tensor gradient(const at::Tensor& loss, const at::Tensor& predictions) const;
  void check_further_outputs(const Found& found) const;

  std::string path_;
  Outputs outputs_;
};

}  // namespace lensbox
