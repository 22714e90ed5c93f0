#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lensbox {

// An input or output of a model. type: in ONNX's words, such as "float". shape: -1 where a size varies.
struct OnnxValue {
  std::string name;
  std::string type;
  std::vector<int64_t> shape;
};

// The model of detect in onnxruntime, on the CPU. May be called from several threads at once, which share its
// threads.
class OnnxSession {
 public:
  virtual ~OnnxSession() = default;

  // Of the model's metadata_props.
  virtual std::optional<std::string> property(const std::string& key) const = 0;

  // In the model's order.
  virtual const std::vector<OnnxValue>& inputs() const = 0;
  virtual const std::vector<OnnxValue>& outputs() const = 0;

  // canvases: uint8 [B, c, h, w], contiguous, on the CPU. All outputs, in the model's order. The model must
  // have the inputs and outputs of an artifact.
  virtual std::vector<at::Tensor> run(const at::Tensor& canvases, double score_threshold,
                                      double iou_threshold) const = 0;
};

// threads: of the CPU for one batch. Throws ArtifactError, naming the artifact, if onnxruntime does not take
// the model, is not there, or was not there when this library was built.
std::shared_ptr<const OnnxSession> open_onnx_session(const std::filesystem::path& artifact,
                                                     std::string_view model, int threads);

}  // namespace lensbox
