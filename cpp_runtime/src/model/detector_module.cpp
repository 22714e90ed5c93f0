#include "model/detector_module.h"

#include <ATen/ATen.h>
#include <lensbox/error.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>

#include "file/errors.h"

namespace lensbox {
namespace {

std::string shape(const at::Tensor& tensor) {
  return c10::str(tensor.sizes());
}

std::string described(const at::Tensor& tensor) {
  return c10::str(c10::toString(tensor.scalar_type()), " ", tensor.sizes());
}

}  // namespace

DetectorModule::DetectorModule(std::string path, std::shared_ptr<const Methods> methods, Outputs outputs)
    : path_(std::move(path)), methods_(std::move(methods)), outputs_(std::move(outputs)) {}

Prepared DetectorModule::preprocess(const std::vector<at::Tensor>& images,
                                    const std::optional<at::Tensor>& windows) const {
  const auto prepared = call_for_tensors("preprocess", {c10::List<at::Tensor>(images), windows}, 2);
  const auto batch = static_cast<int64_t>(images.size());
  if (prepared[0].dim() != 4 || prepared[0].size(0) != batch ||
      prepared[1].sizes() != at::IntArrayRef{batch, 6}) {
    fail("method preprocess must return canvases [B, C, H, W] and geometry [B, 6] for B images, got " +
         shape(prepared[0]) + " and " + shape(prepared[1]) + " for " + std::to_string(batch));
  }
  return {prepared[0], prepared[1]};
}

Found DetectorModule::detect(const at::Tensor& canvases, double score_threshold, double iou_threshold) const {
  const bool is_named = outputs_.classes > 0 || !outputs_.extras.empty();
  Found found;
  if (is_named) {
    found = call_detect_named(canvases, score_threshold, iou_threshold);
  } else {
    const auto outputs = call_for_tensors("detect", {canvases, score_threshold, iou_threshold}, 3);
    found = {outputs[0], outputs[1], outputs[2]};
  }
  const int64_t batch = canvases.size(0);
  const int64_t slots = found.boxes.dim() == 3 ? found.boxes.size(1) : -1;
  if (found.boxes.sizes() != at::IntArrayRef{batch, slots, 4} ||
      found.scores.sizes() != at::IntArrayRef{batch, slots} ||
      found.counts.sizes() != at::IntArrayRef{batch}) {
    fail(std::string("method ") + (is_named ? "detect_named" : "detect") +
         " must return boxes [B, K, 4], scores [B, K] and counts [B] for B canvases, got " +
         shape(found.boxes) + ", " + shape(found.scores) + " and " + shape(found.counts) + " for " +
         std::to_string(batch));
  }
  check_further_outputs(found);
  return found;
}

at::Tensor DetectorModule::restore(const at::Tensor& boxes, const at::Tensor& geometry) const {
  at::Tensor restored = call_for_tensors("restore", {boxes, geometry}, 1)[0];
  if (restored.sizes() != boxes.sizes()) {
    fail("method restore must keep the shape " + shape(boxes) + ", got " + shape(restored));
  }
  return restored;
}

at::Tensor DetectorModule::restore_points(const at::Tensor& points, const at::Tensor& geometry) const {
  at::Tensor restored = call_for_tensors("restore_points", {points, geometry}, 1)[0];
  if (restored.sizes() != points.sizes() || restored.scalar_type() != at::kFloat) {
    fail("method restore_points must return float32 " + shape(points) + ", got " + described(restored));
  }
  return restored;
}

at::Tensor DetectorModule::loss(const at::Tensor& predictions, const at::Tensor& targets) const {
  return call_for_tensors("loss", {predictions, targets}, 1)[0];
}

double DetectorModule::value_of(const at::Tensor& loss) const {
  if (loss.numel() != 1 || loss.is_complex()) {
    fail("method loss must return one number, got " + described(loss));
  }
  return loss.item<double>();
}

at::Tensor DetectorModule::gradient(const at::Tensor& loss, const at::Tensor& predictions) const {
  if (!loss.requires_grad()) fail("method loss must return one number that has a gradient, got one without");
  try {
    const auto gradients = torch::autograd::grad({loss.sum()}, {predictions}, /*grad_outputs=*/{},
                                                 /*retain_graph=*/std::nullopt, /*create_graph=*/false,
                                                 /*allow_unused=*/true);
    return gradients[0].defined() ? gradients[0] : at::zeros_like(predictions);
  } catch (const std::exception& error) {
    fail(std::string("the gradient of method loss failed:\n") + torch_message(error));
  }
}

void DetectorModule::fail(const std::string& reason) const {
  fail_artifact(path_, reason);
}

c10::IValue DetectorModule::call(const char* method, std::vector<c10::IValue> arguments) const {
  if (!methods_->has(method)) fail(std::string("has no method ") + method);
  try {
    return methods_->call(method, std::move(arguments));
  } catch (const std::exception& error) {
    fail(std::string("method ") + method + " failed:\n" + torch_message(error));
  }
}

// Return a method's result, which must be one tensor or a tuple of `count` tensors.
std::vector<at::Tensor> DetectorModule::call_for_tensors(const char* method,
                                                         std::vector<c10::IValue> arguments,
                                                         size_t count) const {
  const c10::IValue result = call(method, std::move(arguments));
  std::vector<c10::IValue> values{result};
  if (result.isTuple()) values = result.toTupleRef().elements().vec();
  if (values.size() != count || !std::ranges::all_of(values, &c10::IValue::isTensor)) {
    fail(std::string("method ") + method + " must return " + std::to_string(count) + " tensor(s), got " +
         result.tagKind());
  }
  std::vector<at::Tensor> tensors;
  for (const c10::IValue& value : values) {
    tensors.push_back(value.toTensor());
  }
  return tensors;
}

Found DetectorModule::call_detect_named(const at::Tensor& canvases, double score_threshold,
                                        double iou_threshold) const {
  const c10::IValue result = call("detect_named", {canvases, score_threshold, iou_threshold});
  if (!result.isGenericDict()) {
    fail("method detect_named must return tensors by name, got " + result.tagKind());
  }
  const auto dict = result.toGenericDict();
  const auto tensor = [&](const std::string& name) {
    const auto found = dict.find(name);
    if (found == dict.end() || !found->value().isTensor()) {
      fail("method detect_named must return the tensor " + name + ", got " +
           (found == dict.end() ? "none" : found->value().tagKind()));
    }
    return found->value().toTensor();
  };
  Found found{tensor("boxes"), tensor("scores"), tensor("counts")};
  if (outputs_.classes > 0) found.labels = tensor("labels");
  for (const Extra& extra : outputs_.extras) {
    found.extras.push_back(tensor(extra.name));
  }
  return found;
}

// Check types and shapes, with boxes [B, K, 4]. The numbers are checked once they are on the CPU.
void DetectorModule::check_further_outputs(const Found& found) const {
  const std::vector<int64_t> slots = found.scores.sizes().vec();
  if (found.labels.defined() && (found.labels.sizes() != slots || found.labels.scalar_type() != at::kLong)) {
    fail("method detect_named must return labels as Long " + c10::str(at::IntArrayRef(slots)) + ", got " +
         described(found.labels));
  }
  for (size_t i = 0; i < found.extras.size(); ++i) {
    const Extra& extra = outputs_.extras[i];
    const at::Tensor& values = found.extras[i];
    std::vector<int64_t> wanted = slots;
    wanted.insert(wanted.end(), extra.shape.begin(), extra.shape.end());
    const bool is_integer = extra.kind == ExtraKind::kValues && values.scalar_type() == at::kLong;
    if (values.sizes() == wanted && (is_integer || values.scalar_type() == at::kFloat)) continue;
    fail("method detect_named must return " + extra.name + " as Float " +
         (extra.kind == ExtraKind::kValues ? "or Long " : "") + c10::str(at::IntArrayRef(wanted)) + ", got " +
         described(values));
  }
}

}  // namespace lensbox
