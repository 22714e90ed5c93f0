#include "detect_only_methods.h"

#include <ATen/ATen.h>
#include <ATen/core/Dict.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "canvas_geometry.h"

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

}  // namespace

bool has_loss(const Metadata& metadata) {
  return metadata.file_kind == FileKind::kTorchScript ||
         std::ranges::find(metadata.methods, "loss") != metadata.methods.end();
}

DetectOnlyMethods::DetectOnlyMethods(Run run, const Metadata& metadata, c10::Device device)
    : run_(std::move(run)),
      device_(device),
      canvas_(*metadata.reading.canvas),
      methods_(metadata.methods),
      outputs_{"boxes", "scores", "counts"} {
  if (!metadata.classes.empty()) outputs_.push_back("labels");
  for (const Extra& extra : metadata.extras) {
    outputs_.push_back(extra.name);
  }
}

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
    return c10::ivalue::Tuple::create(std::move(canvases), std::move(geometry));
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
  const bool fits =
      canvases.dim() == 4 && canvases.size(0) > 0 && canvases.device() == device_ &&
      canvases.sizes().slice(1) == at::IntArrayRef{canvas_.channels, canvas_.height, canvas_.width};
  TORCH_CHECK(fits && canvases.scalar_type() == at::kByte, "canvases must be uint8 [B, ", canvas_.channels,
              ", ", canvas_.height, ", ", canvas_.width, "] on ", device_, " with B at least 1, got ",
              canvases.scalar_type(), " ", canvases.sizes(), " on ", canvases.device());
  std::vector<at::Tensor> found = run_(canvases.contiguous(), score_threshold, iou_threshold);
  TORCH_CHECK(found.size() == outputs_.size(), "it must give ", outputs_.size(), " tensors, got ",
              found.size());
  return found;
}

c10::IValue DetectOnlyMethods::detect_named(const std::vector<at::Tensor>& found) const {
  c10::Dict<std::string, at::Tensor> named;
  for (size_t i = 0; i < found.size(); ++i) {
    named.insert(outputs_[i], found[i]);
  }
  return named;
}

}  // namespace lensbox
