#include "model/methods.h"

#include <ATen/ATen.h>
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

// Return boxes as the graph of a loss takes them: float64 [B, N, 4].
at::Tensor as_batch(const at::Tensor& boxes) {
  return boxes.detach().to(at::kDouble).reshape({-1, boxes.size(-2), boxes.size(-1)});
}

}  // namespace

bool ScriptModule::has(const std::string& name) const {
  return module_.find_method(name).has_value();
}

Tensors ScriptModule::call(const std::string& name, std::vector<c10::IValue> arguments) const {
  const torch::jit::GraphOptimizerEnabledGuard without_profiling(false);
  const c10::IValue result = module_.get_method(name)(std::move(arguments));
  std::vector<c10::IValue> values{result};
  if (result.isTuple()) values = result.toTupleRef().elements().vec();
  if (name == "detect_named") {
    TORCH_CHECK(result.isGenericDict(), "it must return tensors by name, got ", result.tagKind());
    const auto named = result.toGenericDict();
    values.clear();
    for (const std::string& output : outputs().names()) {
      const auto found = named.find(output);
      TORCH_CHECK(found != named.end(), "it must return the tensor ", output, ", got none");
      values.push_back(found->value());
    }
  }
  Tensors tensors;
  for (const c10::IValue& value : values) {
    TORCH_CHECK(value.isTensor(), "it must return tensors, got ", value.tagKind());
    tensors.push_back(value.toTensor());
  }
  return tensors;
}

bool has_loss(const Metadata& metadata) {
  return metadata.file_kind == FileKind::kTorchScript ||
         std::ranges::find(metadata.methods, "loss") != metadata.methods.end();
}

DetectOnlyModule::DetectOnlyModule(std::string path, Code detect, const Metadata& metadata, Outputs outputs,
                                   Code loss)
    : DetectorModule(std::move(path), std::move(outputs)),
      detect_(std::move(detect)),
      loss_(std::move(loss)),
      canvas_(metadata.reading.canvas),
      batch_(metadata.batch),
      methods_(metadata.methods) {}

bool DetectOnlyModule::has(const std::string& name) const {
  return std::ranges::find(methods_, name) != methods_.end();
}

std::vector<std::string> DetectOnlyModule::ops(const Metadata& metadata) {
  std::vector<std::string> schemas{kFit};
  if (has_loss(metadata)) schemas.emplace_back(kGiouLoss);
  return schemas;
}

Tensors DetectOnlyModule::call(const std::string& name, std::vector<c10::IValue> arguments) const {
  const auto tensor = [&](size_t index) { return arguments.at(index).toTensor(); };
  if (name == "preprocess") {
    const c10::IValue none;
    auto fitted =
        call_ops("lensbox::fit", arguments.at(0), canvas_.height, canvas_.width, canvas_.fit, canvas_.filter,
                 canvas_.channels == 1 ? "gray" : canvas_.order, canvas_.fill, none, none, none);
    if (const auto windows = arguments.at(1); !windows.isNone()) {
      fitted[1] = call_op("lensbox::geometry_of_windows", fitted[1], windows);
    }
    return {fitted[0].toTensor(), fitted[1].toTensor()};
  }
  if (name == "restore") return {call_op("lensbox::restore_boxes", tensor(0), tensor(1)).toTensor()};
  if (name == "restore_points") return {call_op("lensbox::restore_points", tensor(0), tensor(1)).toTensor()};
  if (name == "loss" && loss_) return loss_({as_batch(tensor(0)), as_batch(tensor(1))});
  if (name == "loss") {
    return {call_op("lensbox::masked_giou_loss", tensor(0), tensor(1), c10::IValue(), 1e-7).toTensor()};
  }
  const auto number = [&](size_t index) {
    return at::scalar_tensor(arguments.at(index).toDouble(), at::dtype(at::kDouble));
  };
  return detect_in_batches({tensor(0), number(1), number(2)});
}

Tensors DetectOnlyModule::detect_in_batches(const Tensors& inputs) const {
  const at::Tensor& canvases = inputs[0];
  const int64_t step = batch_ == 0 ? canvases.size(0) : batch_;
  std::vector<Tensors> outputs;
  for (int64_t first = 0; first < canvases.size(0); first += step) {
    const at::Tensor part = canvases.slice(0, first, first + step);
    const Tensors found = detect_({filled(part, step).contiguous(), inputs[1], inputs[2]});
    outputs.resize(found.size());
    for (size_t i = 0; i < found.size(); ++i) {
      outputs[i].push_back(found[i].slice(0, 0, part.size(0)));
    }
  }
  Tensors joined;
  for (const Tensors& parts : outputs) {
    joined.push_back(parts.size() == 1 ? parts[0] : at::cat(parts));
  }
  return joined;
}

}  // namespace lensbox
