#include "model/detector_module.h"

#include <ATen/ATen.h>
#include <c10/util/ScopeExit.h>
#include <lensbox/error.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>

#include "backends/call.h"
#include "model/machine.h"
#include "model/torch_errors.h"

namespace lensbox {
namespace {

std::string shape(const at::Tensor& tensor) {
  return c10::str(tensor.sizes());
}

std::string described(const at::Tensor& tensor) {
  return c10::str(c10::toString(tensor.scalar_type()), " ", tensor.sizes());
}

// Return the device on which a method computes: that of its first argument, images or a tensor.
c10::Device device_of_argument(const c10::IValue& argument) {
  if (argument.isTensor()) return argument.toTensor().device();
  const c10::List<at::Tensor> images = argument.toTensorList();
  return images.empty() ? c10::Device(c10::kCPU) : images.get(0).device();
}

}  // namespace

Prepared DetectorModule::preprocess(const std::vector<at::Tensor>& images,
                                    const std::optional<at::Tensor>& windows) const {
  const auto prepared = results("preprocess", {c10::List<at::Tensor>(images), windows}, 2);
  const auto batch = static_cast<int64_t>(images.size());
  if (prepared[0].dim() != 4 || prepared[0].size(0) != batch ||
      prepared[1].sizes() != at::IntArrayRef{batch, 6}) {
    fail("method preprocess must return canvases [B, C, H, W] and geometry [B, 6] for B images, got " +
         shape(prepared[0]) + " and " + shape(prepared[1]) + " for " + std::to_string(batch));
  }
  return {prepared[0], prepared[1]};
}

Found DetectorModule::detect(const at::Tensor& canvases, double score_threshold, double iou_threshold) const {
  const Tensors outputs =
      results("detect", {canvases, score_threshold, iou_threshold}, outputs_.names().size());
  std::vector<OutputType> types;
  for (const at::Tensor& output : outputs) {
    types.push_back({c10::toString(output.scalar_type()), output.sizes().vec()});
  }
  check_outputs(path_, outputs_, types, canvases.size(0));
  Found found{outputs[0], outputs[1], outputs[2]};
  if (outputs_.classes > 0) found.labels = outputs[3];
  found.extras.assign(outputs.end() - std::ssize(outputs_.extras), outputs.end());
  return found;
}

Found DetectorModule::restore(Found found, const at::Tensor& geometry) const {
  const auto restored = [&](const std::string& method, const at::Tensor& values, bool is_float) {
    at::Tensor result = results(method, {values, geometry}, 1)[0];
    if (result.sizes() == values.sizes() && (!is_float || result.scalar_type() == at::kFloat)) return result;
    fail("method " + method + " must return " + (is_float ? "Float " : "") + shape(values) + ", got " +
         described(result));
  };
  found.boxes = restored("restore", found.boxes, false);
  for (size_t i = 0; i < found.extras.size(); ++i) {
    if (outputs_.extras[i].kind == ExtraKind::kPoints) {
      found.extras[i] = restored("restore_points", found.extras[i], true);
    }
  }
  return found;
}

std::pair<double, at::Tensor> DetectorModule::loss(const at::Tensor& predictions,
                                                   const at::Tensor& targets) const {
  const Tensors values = results("loss", {predictions, targets}, 1, /*or_more=*/true);
  const at::Tensor& value = values[0];
  if (value.numel() != 1 || value.is_complex()) {
    fail("method loss must return one number, got " + described(value));
  }
  at::Tensor of_predictions;
  if (predictions.requires_grad()) {
    of_predictions = values.size() == 1
                         ? gradient(value, predictions)
                         : values[1].to(predictions.scalar_type()).reshape(predictions.sizes()).clone();
  }
  return {value.item<double>(), of_predictions};
}

at::Tensor DetectorModule::gradient(const at::Tensor& loss, const at::Tensor& predictions) const {
  if (!loss.requires_grad()) fail("method loss must return one number that has a gradient, got one without");
  const GpuFloat32 float32(predictions.device(), tf32_);
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

Tensors DetectorModule::results(const std::string& method, std::vector<c10::IValue> arguments, size_t count,
                                bool or_more) const {
  const Call call;
  const c10::Device device = device_of_argument(arguments.at(0));
  const GpuFloat32 float32(device, tf32_);
  std::optional<Tensors> tensors;
  // Also after a failure, which may come behind a part of the work.
  const auto noted = c10::make_scope_exit([&work = *work_, device]() noexcept { work.note(device); });
  try {
    tensors = call_(method, std::move(arguments));
  } catch (const std::exception& error) {
    fail("method " + method + " failed:\n" + torch_message(error));
  }
  if (!tensors) fail("has no method " + method);
  if (tensors->size() == count || (or_more && tensors->size() > count)) return *std::move(tensors);
  fail(c10::str("method ", method, " must return ", count, " tensor(s), got ", tensors->size()));
}

}  // namespace lensbox
