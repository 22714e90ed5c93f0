#pragma once

#include <ATen/core/ivalue.h>
#include <c10/core/Device.h>
#include <lensbox/metadata.h>
#include <lensbox/torch/tensors.h>
#include <torch/csrc/jit/api/module.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "backends/outputs.h"
#include "model/enqueued_work.h"

namespace lensbox {

struct Prepared {
  at::Tensor canvases;  // uint8 [B, c, h, w]
  at::Tensor geometry;  // float32 [B, 6]
};

using Tensors = std::vector<at::Tensor>;

// Calls a method by its name, and returns its tensors: of detect in the order of Outputs::names, of
// loss also the gradient, if the file computes it. Returns nothing if there is no such method. Exceptions of
// the method pass through. Called from several threads at once.
using ArtifactMethods =
    std::function<std::optional<Tensors>(const std::string& method, std::vector<c10::IValue> arguments)>;

// The typed methods of an artifact, whatever the kind of its file, with checked results: docs/artifact.md has
// the methods. Thread-safe.
//
// Every method throws ArtifactError with the path if the artifact has no such method, or the method fails or
// returns a wrong result. The destructor of the last copy waits until no GPU computes with the weights.
class DetectorModule {
 public:
  // tf32: whether methods compute in TF32 on GPUs.
  DetectorModule(std::string path, Outputs outputs, ArtifactMethods methods, bool tf32 = false)
      : path_(std::move(path)), outputs_(std::move(outputs)), call_(std::move(methods)), tf32_(tf32) {}

  const std::string& path() const { return path_; }

  // windows: float32 [B, 6]; none if all images are whole photographs.
  Prepared preprocess(const Tensors& images, const std::optional<at::Tensor>& windows) const;

  Found detect(const at::Tensor& canvases, double score_threshold, double iou_threshold) const;

  // Convert boxes and points in canvases to pixels of the photographs, by restore and restore_points.
  // geometry: [B, 6].
  Found restore(Found found, const at::Tensor& geometry) const;

  // Return the loss and, if the predictions require a gradient, its gradient with respect to them.
  std::pair<double, at::Tensor> loss(const at::Tensor& predictions, const at::Tensor& targets) const;

  [[noreturn]] void fail(const std::string& reason) const;

 private:
  // Call a method that returns `count` tensors, or more if `or_more`.
  Tensors results(const std::string& method, std::vector<c10::IValue> arguments, size_t count,
                  bool or_more = false) const;
  at::Tensor gradient(const at::Tensor& loss, const at::Tensor& predictions) const;

  std::string path_;
  Outputs outputs_;
  ArtifactMethods call_;
  bool tf32_;
  std::shared_ptr<EnqueuedWork> work_ = std::make_shared<EnqueuedWork>();  // behind the weights in call_
};

// --- methods.cpp ---

// Return the methods of a TorchScript module. They run without TorchScript's profiling executor, which would
// compile again for each batch size; the switch is restored after the call.
ArtifactMethods script_methods(torch::jit::Module module, const Outputs& outputs);

// Code in a file. Of detect: contiguous canvases on the device, and thresholds of scores and IoU, float64 on
// the CPU, which the code reads there without waiting for the device, to the outputs in the order of
// Outputs::names. Of the loss: predictions and targets, float64 [B, N, 4], to the loss and, if there is one,
// its gradient with respect to the predictions. Called from several threads at once.
using Code = std::function<Tensors(const Tensors& inputs)>;

// Return the methods of a file that contains only detect, a package, or beside it a loss, a
// program. All other methods are Lensbox's own, the same that the export gives to a detector without its own.
// loss: of the file; none for Lensbox's.
//
// The code in the file checks nothing: canvases must be uint8 [B, c, h, w] on the device, with B of at
// least 1. If the code takes batches of one size only, batches are cut, and the last one is filled with
// black.
ArtifactMethods default_methods(Code detect, Code loss, const Metadata& metadata);

// --- program.cpp and aoti.cpp ---

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

// --- graphs.cpp ---

// Run detect with the CUDA graph of the next larger batch size. Return nothing if no graph fits the batch
// size, the canvases or the thresholds. Thread-safe.
using DetectGraphs = std::function<std::optional<Found>(const at::Tensor& canvases, double score_threshold,
                                                        double iou_threshold)>;

// Record the graphs for canvases like `canvas`, [1, c, h, w] on a GPU, and for these thresholds. Throws
// DeviceError in a library that was built without CUDA, ArtifactError.
DetectGraphs record_graphs(const DetectorModule& module, const at::Tensor& canvas,
                           const std::vector<int64_t>& batch_sizes, double score_threshold,
                           double iou_threshold);

}  // namespace lensbox
