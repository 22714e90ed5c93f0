#pragma once

#include <ATen/core/ivalue.h>
#include <c10/core/Device.h>
#include <lensbox/metadata.h>
#include <torch/csrc/jit/api/module.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace lensbox {

// The methods of an artifact by their names, whatever the kind of its file: docs/artifact.md has their
// arguments and results. Thread-safe.
class Methods {
 public:
  virtual ~Methods() = default;

  virtual bool has(const std::string& name) const = 0;

  // Call an existing method. Exceptions of the method pass through.
  virtual c10::IValue call(const std::string& name, std::vector<c10::IValue> arguments) const = 0;
};

// The methods of a TorchScript module. They run without TorchScript's profiling executor, which would compile
// again for each batch size; the switch is restored after the call.
class ScriptMethods final : public Methods {
 public:
  explicit ScriptMethods(torch::jit::Module module);

  bool has(const std::string& name) const override;
  c10::IValue call(const std::string& name, std::vector<c10::IValue> arguments) const override;

 private:
  torch::jit::Module module_;
};

// Return whether there is a loss. TorchScript files always have one; packages and ONNX files lack a loss of
// the detector's own.
bool has_loss(const Metadata& metadata);

// Return the names of the outputs of detect: boxes, scores, counts, labels if there are classes, extras.
std::vector<std::string> output_names(const Metadata& metadata);

// The code of detect: contiguous canvases on the device and thresholds of scores and IoU to the outputs,
// in the order of output_names. Called from several threads at once.
using DetectCode = std::function<std::vector<at::Tensor>(const at::Tensor& canvases, double score_threshold,
                                                         double iou_threshold)>;

// A loss of predictions and targets, [N, 4] or [B, N, 4], which autograd can follow.
using LossCode = std::function<at::Tensor(const at::Tensor& predictions, const at::Tensor& targets)>;

// Return the graphs of a program in the bytes of an artifact. Throws ArtifactError, naming the artifact.
DetectCode load_detect_graph(const std::filesystem::path& artifact, std::shared_ptr<const std::string> bytes,
                             c10::Device device);
LossCode load_loss_graph(const std::filesystem::path& artifact, std::shared_ptr<const std::string> bytes,
                         c10::Device device);

// Return the compiled code of detect in an AOTInductor package, `bytes`, that was compiled for this machine.
// Throws ArtifactError, naming the artifact.
//
// On a GPU the code runs without AOTInductor's own bookkeeping, which queries events of earlier runs; a CUDA
// graph cannot capture these queries. Calls are launched one after another instead.
DetectCode load_package(const std::filesystem::path& artifact, std::string_view bytes, c10::Device device);

// Open an ONNX model in onnxruntime, on the CPU, and return its detect. All callers share its threads.
// threads: CPU threads for one batch. Throws ArtifactError, naming the artifact, if onnxruntime refuses the
// model or is not there, or if this library was built without it. A call fails if the model lacks an input or
// output, or has one of another type or size.
DetectCode open_onnx_session(const std::filesystem::path& artifact, std::string_view model,
                             const Metadata& metadata, int threads);

// The methods of a file that contains only detect, a package or an ONNX file, or beside it a loss, a program.
// All other methods are Lensbox's own, the same that the export gives to a detector without its own.
//
// The code in the file checks nothing: canvases must be uint8 [B, c, h, w] on the device, with B of at
// least 1. If the code takes batches of one size only, batches are cut, and the last one is filled with
// black.
class DetectOnlyMethods final : public Methods {
 public:
  // loss: of the file; none for Lensbox's.
  DetectOnlyMethods(DetectCode run, const Metadata& metadata, c10::Device device, LossCode loss = {});

  bool has(const std::string& name) const override;
  c10::IValue call(const std::string& name, std::vector<c10::IValue> arguments) const override;

  // Return the schemas of the ops that these methods call.
  static std::vector<std::string> ops(const Metadata& metadata);

 private:
  std::vector<at::Tensor> detect(const at::Tensor& canvases, double score_threshold,
                                 double iou_threshold) const;
  c10::IValue detect_named(const std::vector<at::Tensor>& found) const;

  DetectCode run_;
  LossCode loss_;
  c10::Device device_;
  Canvas canvas_;
  int64_t batch_;
  std::vector<std::string> methods_;
  std::vector<std::string> outputs_;
};

}  // namespace lensbox
