#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <filesystem>
#include <memory>
#include <mutex>
#include <string_view>
#include <vector>

namespace torch::inductor {
class AOTIModelPackageLoader;
}

namespace lensbox {

// The compiled code of detect in an AOTInductor package. Thread-safe.
//
// On a GPU it runs without AOTInductor's own bookkeeping, which asks for events of earlier runs, and that
// cannot be captured in a CUDA graph; calls are launched one after another instead.
class CompiledDetect {
 public:
  // bytes: the whole package, compiled for this machine. Throws ArtifactError, naming the artifact.
  CompiledDetect(const std::filesystem::path& artifact, std::string_view bytes, c10::Device device);
  ~CompiledDetect();

  // canvases: contiguous, of the artifact's size, on the device; of others it makes garbage. The outputs in
  // the order of the code.
  std::vector<at::Tensor> run(const at::Tensor& canvases, double score_threshold, double iou_threshold) const;

 private:
  c10::Device device_;
  std::unique_ptr<torch::inductor::AOTIModelPackageLoader> loader_;
  mutable std::mutex turn_;  // on a GPU
};

}  // namespace lensbox
