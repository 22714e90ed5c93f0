#include "model/methods.h"

#include <ATen/ATen.h>
#include <ATen/core/Dict.h>
#include <torch/csrc/jit/runtime/graph_executor.h>

#include <algorithm>
#include <utility>

#include "model/op_library.h"

namespace lensbox {
namespace {

constexpr const char* kFit =
    "lensbox::fit(Tensor[] images, int height, int width, str fit='letterbox', str filter='bilinear',"
    " str order='rgb', int fill=0, float[]? mean=None, float[]? std=None, ScalarType? dtype=None)"
    " -> (Tensor canvases, Tensor geometry)";
constexpr const char* kGiouLoss =
    "lensbox::masked_giou_loss(Tensor pred, Tensor target, Tensor? weight=None, float eps=1e-7) -> Tensor";

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

DetectOnlyMethods::DetectOnlyMethods(DetectCode run, const Metadata& metadata, c10::Device device,
                                     LossCode loss)
    : run_(std::move(run)),
      loss_(std::move(loss)),
      device_(device),
      canvas_(metadata.reading.canvas),
      batch_(metadata.batch),
      methods_(metadata.methods),
      outputs_(output_names(metadata)) {}

bool DetectOnlyMethods::has(const std::string& name) const {
  return std::ranges::find(methods_, name) != methods_.end();
}

std::vector<std::string> DetectOnlyMethods::ops(const Metadata& metadata) {
  std::vector<std::string> schemas{kFit};
  if (has_loss(metadata)) schemas.emplace_back(kGiouLoss);
  return schemas;
}

c10::IValue DetectOnlyMethods::call(const std::string& name, std::vector<c10::IValue> arguments) const {
  const auto tensor = [&](size_t index) { return arguments.at(index).toTensor(); };
  if (name == "preprocess") {
    const c10::IValue none;
    auto fitted =
        call_ops("lensbox::fit", arguments.at(0), canvas_.height, canvas_.width, canvas_.fit, canvas_.filter,
                 canvas_.channels == 1 ? "gray" : canvas_.order, canvas_.fill, none, none, none);
    if (const auto windows = arguments.at(1); !windows.isNone()) {
      fitted[1] = call_op("lensbox::geometry_of_windows", fitted[1], windows);
    }
    return c10::ivalue::Tuple::create(fitted[0], fitted[1]);
  }
  if (name == "restore") return call_op("lensbox::restore_boxes", tensor(0), tensor(1));
  if (name == "restore_points") return call_op("lensbox::restore_points", tensor(0), tensor(1));
  if (name == "loss" && loss_) return loss_(tensor(0), tensor(1));
  if (name == "loss") return call_op("lensbox::masked_giou_loss", tensor(0), tensor(1), c10::IValue(), 1e-7);
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
