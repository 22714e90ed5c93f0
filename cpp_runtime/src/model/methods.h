#pragma once

#include <c10/core/Device.h>
#include <lensbox/metadata.h>
#include <torch/csrc/jit/api/module.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/detector_module.h"

namespace lensbox {

// A TorchScript module. Its methods run without TorchScript's profiling executor, which would compile again
// for each batch size; the switch is restored after the call.
class ScriptModule final : public DetectorModule {
 public:
  ScriptModule(std::string path, torch::jit::Module module, Outputs outputs = {})
      : DetectorModule(std::move(path), std::move(outputs)), module_(std::move(module)) {}

 private:
  bool has(const std::string& method) const override;
  Tensors call(const std::string& method, std::vector<c10::IValue> arguments) const override;

  torch::jit::Module module_;
};

// Return whether there is a loss. TorchScript files always have one; packages and ONNX files lack a loss of
// the detector's own.
bool has_loss(const Metadata& metadata);

// Code in a file. Of detect: contiguous canvases on the device, and thresholds of scores and IoU, float64 on
// the CPU, which the code reads there without waiting for the device, to the outputs in the order of
// Outputs::names. Of the loss: predictions and targets, float64 [B, N, 4], to the loss and, if there is one,
// its gradient with respect to the predictions. Called from several threads at once.
using Code = std::function<Tensors(const Tensors& inputs)>;

// Return a graph of a program in the bytes of an artifact with a seal. Throws ArtifactError, naming the
// artifact.
Code load_graph(const std::filesystem::path& artifact, std::shared_ptr<const std::string> bytes,
                const std::string& name, c10::Device device);

// Return the compiled code of detect in an AOTInductor package, `bytes`, that was compiled for this machine.
// Throws ArtifactError, naming the artifact.
//
// On a GPU the code runs without AOTInductor's own bookkeeping, which queries events of earlier runs; a CUDA
// graph cannot capture these queries. Calls are launched one after another instead.
Code load_package(const std::filesystem::path& artifact, std::string_view bytes, c10::Device device);

// Open an ONNX model in onnxruntime, on the CPU, and return its detect. All callers share its threads.
// threads: CPU threads for one batch. Throws ArtifactError, naming the artifact, if onnxruntime refuses the
// model or is not there, or if this library was built without it. A call fails if the model lacks an input or
// output, or has one of another type or size.
Code open_onnx_session(const std::filesystem::path& artifact, std::string_view model, const Outputs& outputs,
                       int threads);

// A file that contains only detect, a package or an ONNX file, or beside it a loss, a program. All other
// methods are Lensbox's own, the same that the export gives to a detector without its own.
//
// The code in the file checks nothing: canvases must be uint8 [B, c, h, w] on the device, with B of at
// least 1. If the code takes batches of one size only, batches are cut, and the last one is filled with
// black.
class DetectOnlyModule final : public DetectorModule {
 public:
  // loss: of the file; none for Lensbox's.
  DetectOnlyModule(std::string path, Code detect, const Metadata& metadata, Outputs outputs, Code loss = {});

  // Return the schemas of the ops that these methods call.
  static std::vector<std::string> ops(const Metadata& metadata);

 private:
  bool has(const std::string& method) const override;
  Tensors call(const std::string& method, std::vector<c10::IValue> arguments) const override;
  Tensors detect_in_batches(const Tensors& inputs) const;

  Code detect_;
  Code loss_;
  Canvas canvas_;
  int64_t batch_;
  std::vector<std::string> methods_;
};

}  // namespace lensbox
