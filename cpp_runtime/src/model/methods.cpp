#include <ATen/ATen.h>
#include <torch/csrc/jit/runtime/graph_executor.h>

#include <algorithm>
#include <utility>

#include "model/detector_module.h"
#include "model/op_library.h"

namespace lensbox {
namespace {

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

// The methods around the code of a file: default_methods.
struct DefaultMethods {
  Code detect, loss;
  Canvas canvas;
  int64_t batch;  // the one size of batches; 0: any
  std::vector<std::string> names;

  std::optional<Tensors> operator()(const std::string& name, std::vector<c10::IValue> arguments) const {
    if (std::ranges::find(names, name) == names.end()) return std::nullopt;
    const auto tensor = [&](size_t index) { return arguments.at(index).toTensor(); };
    if (name == "preprocess") return preprocess(arguments.at(0), arguments.at(1));
    if (name == "restore") return {{call_op("lensbox::restore_boxes", tensor(0), tensor(1)).toTensor()}};
    if (name == "restore_points") {
      return {{call_op("lensbox::restore_points", tensor(0), tensor(1)).toTensor()}};
    }
    if (name == "loss" && loss) return loss({as_batch(tensor(0)), as_batch(tensor(1))});
    if (name == "loss") {
      return {{call_op("lensbox::masked_giou_loss", tensor(0), tensor(1), c10::IValue(), 1e-7).toTensor()}};
    }
    const auto number = [&](size_t index) {
      return at::scalar_tensor(arguments.at(index).toDouble(), at::dtype(at::kDouble));
    };
    return detect_in_batches(tensor(0), number(1), number(2));
  }

  Tensors preprocess(const c10::IValue& images, const c10::IValue& windows) const {
    const c10::IValue none;
    auto fitted = call_ops("lensbox::fit", images, canvas.height, canvas.width, canvas.fit, canvas.filter,
                           canvas.channels == 1 ? "gray" : canvas.order, canvas.fill, none, none, none);
    if (!windows.isNone()) fitted[1] = call_op("lensbox::geometry_of_windows", fitted[1], windows);
    return {fitted[0].toTensor(), fitted[1].toTensor()};
  }

  Tensors detect_in_batches(const at::Tensor& canvases, const at::Tensor& score,
                            const at::Tensor& iou) const {
    const int64_t step = batch == 0 ? canvases.size(0) : batch;
    std::vector<Tensors> outputs;
    for (int64_t first = 0; first < canvases.size(0); first += step) {
      const at::Tensor part = canvases.slice(0, first, first + step);
      const Tensors found = detect({filled(part, step).contiguous(), score, iou});
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
};

}  // namespace

ArtifactMethods script_methods(torch::jit::Module module, const Outputs& outputs) {
  return [module = std::move(module), names = outputs.names()](
             const std::string& name, std::vector<c10::IValue> arguments) -> std::optional<Tensors> {
    const auto method = module.find_method(name);
    if (!method) return std::nullopt;
    const torch::jit::GraphOptimizerEnabledGuard without_profiling(false);
    const c10::IValue result = (*method)(std::move(arguments));
    std::vector<c10::IValue> values{result};
    if (result.isTuple()) values = result.toTupleRef().elements().vec();
    if (name == "detect") {
      TORCH_CHECK(result.isGenericDict(), "it must return tensors by name, got ", result.tagKind());
      const auto named = result.toGenericDict();
      values.clear();
      for (const std::string& output : names) {
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
  };
}

ArtifactMethods default_methods(Code detect, Code loss, const Metadata& metadata) {
  return DefaultMethods{std::move(detect), std::move(loss), metadata.reading.canvas, metadata.batch,
                        metadata.methods};
}

}  // namespace lensbox
