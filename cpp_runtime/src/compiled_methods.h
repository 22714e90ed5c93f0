#pragma once

#include <c10/core/Device.h>
#include <lensbox/torch/metadata.h>

#include <filesystem>
#include <memory>
#include <mutex>
#include <string_view>

#include "methods.h"

namespace torch::inductor {
class AOTIModelPackageLoader;
}

namespace lensbox {

// Those of an AOTInductor package: detect is its compiled code, all others are Lensbox's own, as the export
// gives them to a detector that brings none itself. A loss of the detector's own is not there.
//
// The code checks nothing, so canvases must be uint8 [B, c, h, w] on the device, with B from 1: others are
// refused. On a GPU it runs without AOTInductor's own bookkeeping, which asks for events of earlier runs, and
// that cannot be captured in a CUDA graph; calls are launched one after another instead.
class CompiledMethods final : public Methods {
 public:
  // bytes: the whole package, for this machine and trusted; metadata: its own. Throws ArtifactError, naming
  // the artifact.
  CompiledMethods(const std::filesystem::path& artifact, std::string_view bytes, const Metadata& metadata,
                  c10::Device device);
  ~CompiledMethods() override;

  bool has(const std::string& name) const override;
  c10::IValue call(const std::string& name, std::vector<c10::IValue> arguments) const override;

 private:
  std::vector<at::Tensor> detect(const at::Tensor& canvases, double score_threshold,
                                 double iou_threshold) const;
  c10::IValue detect_named(const std::vector<at::Tensor>& found) const;

  c10::Device device_;
  Canvas canvas_;
  std::vector<std::string> methods_;
  std::vector<std::string> outputs_;  // of detect, in the order of the code
  std::unique_ptr<torch::inductor::AOTIModelPackageLoader> loader_;
  mutable std::mutex turn_;  // on a GPU
};

}  // namespace lensbox
