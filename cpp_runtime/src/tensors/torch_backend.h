#pragma once

#include <lensbox/torch/tensors.h>

#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backends/backend.h"
#include "model/detector_module.h"

namespace lensbox {

// An artifact that libtorch computes.
class TorchBackend : public Backend {
 public:
  TorchBackend(c10::Device device, Canvas canvas, std::shared_ptr<const DetectorModule> module, int threads,
               void* stream)
      : device_(device),
        canvas_(std::move(canvas)),
        module_(std::move(module)),
        threads_(threads),
        stream_(stream) {}

  std::string device() const override { return device_.str(); }
  PendingBatch detect(const std::vector<Source>& photos, double score, double iou) const override;
  Loss loss(std::span<const Box> predictions, std::span<const Box> targets) const override;
  void capture(const std::vector<int64_t>& batch_sizes, double score, double iou) override;
  DeviceReader device_reader(const Reading& reading, Decode decode, size_t batch_size) const override;

  // Detect in at least one photograph, without waiting for a GPU.
  Found detect_tensors(const std::vector<Photo>& photos, double score, double iou) const;

  // Detect in canvases, with a graph if one was recorded for such a batch. Boxes are in pixels of the
  // canvases.
  Found find(const at::Tensor& canvases, double score, double iou) const;

  // Compute the loss, and the gradient if it is wanted.
  LossAndGradient loss(const at::Tensor& predictions, const at::Tensor& targets, bool with_gradient) const;

 private:
  c10::Device device_;
  Canvas canvas_;
  std::shared_ptr<const DetectorModule> module_;
  int threads_;               // of each call; 0: those of the calling thread
  void* stream_;              // a cudaStream_t, or nullptr for the current one
  DetectGraphs graphs_ = {};  // none unless asked for
};

}  // namespace lensbox
