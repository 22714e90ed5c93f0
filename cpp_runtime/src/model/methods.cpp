#include "model/methods.h"

#include <ATen/ATen.h>
#include <ATen/core/Dict.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/jit/runtime/graph_executor.h>

#include <algorithm>
#include <optional>
#include <tuple>
#include <utility>

namespace lensbox {
namespace {

constexpr const char* kLetterbox =
    "lensbox::letterbox(Tensor[] images, int height, int width, int channels=1, int fill=0)"
    " -> (Tensor canvases, Tensor geometry)";
constexpr const char* kGiouLoss =
    "lensbox::masked_giou_loss(Tensor pred, Tensor target, Tensor? weight=None, float eps=1e-7) -> Tensor";

at::Tensor giou_loss(const at::Tensor& predictions, const at::Tensor& targets) {
  using Loss = at::Tensor(const at::Tensor&, const at::Tensor&, const std::optional<at::Tensor>&, double);
  static const auto op =
      c10::Dispatcher::singleton().findSchemaOrThrow("lensbox::masked_giou_loss", "").typed<Loss>();
  return op.call(predictions, targets, std::nullopt, 1e-7);
}

// [B, 6] as [B, 1, ..., 1, 6], which broadcasts with the values.
at::Tensor beside(const at::Tensor& values, const at::Tensor& geometry) {
  std::vector<int64_t> sizes(values.dim(), 1);
  sizes.front() = geometry.size(0);
  sizes.back() = 6;
  return geometry.view(sizes);
}

at::Tensor part(const at::Tensor& geometry, int64_t first) {
  return geometry.slice(-1, first, first + 2);
}

at::Tensor twice(const at::Tensor& values) {
  return at::cat({values, values}, -1);
}

at::Tensor geometry_of_windows(const at::Tensor& geometry, const at::Tensor& given) {
  const at::Tensor windows = given.to(geometry.options());
  // Divide first: for a whole photograph the quotient is 1, and no bit changes.
  const at::Tensor scale =
      part(geometry, 0) * (part(geometry, 4) / (windows.slice(1, 2, 4) - part(windows, 0)));
  const at::Tensor offset = part(geometry, 2) - part(windows, 0) * scale;
  return at::cat({scale, offset, part(windows, 4)}, 1);
}

// Fit images to canvases, uint8 [B, c, h, w], and return them with their geometry, float32 [B, 6]: (scale_x,
// scale_y, offset_x, offset_y, width, height); a point of the canvas is the photograph's * scale + offset.
// windows: float32 [B, 6], the part of a photograph that each image shows; none if each image is whole.
// The same as ops/canvas.py, to the bit.
std::pair<at::Tensor, at::Tensor> fit_to_canvases(const std::vector<at::Tensor>& images,
                                                  const std::optional<at::Tensor>& windows,
                                                  const Canvas& canvas) {
  using Letterbox = std::tuple<at::Tensor, at::Tensor>(at::TensorList, int64_t, int64_t, int64_t, int64_t);
  const auto letterbox =
      c10::Dispatcher::singleton().findSchemaOrThrow("lensbox::letterbox", "").typed<Letterbox>();
  auto [canvases, geometry] =
      letterbox.call(images, canvas.height, canvas.width, canvas.channels, canvas.fill);
  if (windows) geometry = geometry_of_windows(geometry, *windows);
  return {canvases, geometry};
}

// Convert boxes [B, K, 4] of canvases to the photographs, clipped; geometry [B, 6].
at::Tensor restore_canvas_boxes(const at::Tensor& boxes, const at::Tensor& geometry) {
  const at::Tensor of_boxes = beside(boxes, geometry);
  const at::Tensor restored = (boxes - twice(part(of_boxes, 2))) / twice(part(of_boxes, 0));
  return at::minimum(restored.clamp_min(0.0), twice(part(of_boxes, 4)));
}

// Convert points [B, K, ..., 2] of canvases to the photographs, not clipped.
at::Tensor restore_canvas_points(const at::Tensor& points, const at::Tensor& geometry) {
  const at::Tensor of_points = beside(points, geometry);
  return (points - part(of_points, 2)) / part(of_points, 0);
}

// Return a batch of `size` canvases: the given ones, then black ones.
at::Tensor filled(const at::Tensor& canvases, int64_t size) {
  if (canvases.size(0) == size) return canvases;
  std::vector<int64_t> missing = canvases.sizes().vec();
  missing[0] = size - canvases.size(0);
  return at::cat({canvases, at::zeros(missing, canvases.options())});
}

}  // namespace

ScriptMethods::ScriptMethods(torch::jit::Module module) : module_(std::move(module)) {}

bool ScriptMethods::has(const std::string& name) const {
  return module_.find_method(name).has_value();
}

c10::IValue ScriptMethods::call(const std::string& name, std::vector<c10::IValue> arguments) const {
  const torch::jit::GraphOptimizerEnabledGuard without_profiling(false);
  return module_.get_method(name)(std::move(arguments));
}

bool has_loss(const Metadata& metadata) {
  return metadata.file_kind == FileKind::kTorchScript ||
         std::ranges::find(metadata.methods, "loss") != metadata.methods.end();
}

std::vector<std::string> output_names(const Metadata& metadata) {
  std::vector<std::string> names{"boxes", "scores", "counts"};
  if (!metadata.classes.empty()) names.emplace_back("labels");
  for (const Extra& extra : metadata.extras) {
    names.push_back(extra.name);
  }
  return names;
}

DetectOnlyMethods::DetectOnlyMethods(DetectCode run, const Metadata& metadata, c10::Device device)
    : run_(std::move(run)),
      device_(device),
      canvas_(metadata.reading.canvas),
      batch_(metadata.batch),
      methods_(metadata.methods),
      outputs_(output_names(metadata)) {}

bool DetectOnlyMethods::has(const std::string& name) const {
  return std::ranges::find(methods_, name) != methods_.end();
}

std::vector<std::string> DetectOnlyMethods::ops(const Metadata& metadata) {
  std::vector<std::string> schemas{kLetterbox};
  if (has_loss(metadata)) schemas.emplace_back(kGiouLoss);
  return schemas;
}

c10::IValue DetectOnlyMethods::call(const std::string& name, std::vector<c10::IValue> arguments) const {
  const auto tensor = [&](size_t index) { return arguments.at(index).toTensor(); };
  if (name == "preprocess") {
    const auto windows = arguments.at(1).toOptional<at::Tensor>();
    auto [canvases, geometry] = fit_to_canvases(arguments.at(0).toTensorVector(), windows, canvas_);
    return c10::ivalue::Tuple::create(canvases, geometry);
  }
  if (name == "restore") return restore_canvas_boxes(tensor(0), tensor(1));
  if (name == "restore_points") return restore_canvas_points(tensor(0), tensor(1));
  if (name == "loss") return giou_loss(tensor(0), tensor(1));
  const auto found = detect(tensor(0), arguments.at(1).toDouble(), arguments.at(2).toDouble());
  if (name == "detect_named") return detect_named(found);
  return c10::ivalue::Tuple::create(found[0], found[1], found[2]);
}

std::vector<at::Tensor> DetectOnlyMethods::detect(const at::Tensor& canvases, double score_threshold,
                                                  double iou_threshold) const {
  const int64_t step = batch_ == 0 ? canvases.size(0) : batch_;
  std::vector<std::vector<at::Tensor>> outputs(outputs_.size());
  for (int64_t first = 0; first < canvases.size(0); first += step) {
    const at::Tensor part = canvases.slice(0, first, first + step);
    const auto found = run_(filled(part, step).contiguous(), score_threshold, iou_threshold);
    TORCH_CHECK(found.size() == outputs_.size(), "it must give ", outputs_.size(), " tensors, got ",
                found.size());
    for (size_t i = 0; i < found.size(); ++i) {
      outputs[i].push_back(found[i].slice(0, 0, part.size(0)));
    }
  }
  std::vector<at::Tensor> joined;
  for (const std::vector<at::Tensor>& parts : outputs) {
    joined.push_back(parts.size() == 1 ? parts[0] : at::cat(parts));
  }
  return joined;
}

c10::IValue DetectOnlyMethods::detect_named(const std::vector<at::Tensor>& found) const {
  c10::Dict<std::string, at::Tensor> named;
  for (size_t i = 0; i < found.size(); ++i) {
    named.insert(outputs_[i], found[i]);
  }
  return named;
}

}  // namespace lensbox
