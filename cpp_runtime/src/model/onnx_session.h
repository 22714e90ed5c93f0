#pragma once

#include <ATen/core/Tensor.h>
#include <lensbox/metadata.h>

#include <cstdint>
#include <filesystem>
#include <memory>
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

// The model of detect in onnxruntime, on the CPU. Thread-safe; all callers share its threads.
class OnnxSession {
 public:
  virtual ~OnnxSession() = default;

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

// Throw ArtifactError, naming the artifact, unless inputs and outputs of the model are those that its
// lensbox.json says.
void check_contract(const std::filesystem::path& artifact, const OnnxSession& session,
                    const Metadata& metadata);

}  // namespace lensbox
