#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <caffe2/serialize/read_adapter_interface.h>
#include <lensbox/artifact.h>
#include <lensbox/error.h>
#include <lensbox/op_library.h>
#include <torch/csrc/jit/serialization/import.h>

#include <algorithm>
#include <cstring>

#include "artifact_file.h"
#include "full_float32.h"
#include "torch_error.h"
#include "torch_version.h"

namespace lensbox {
namespace {

// Gives torch the bytes that were checked.
class BytesReader : public caffe2::serialize::ReadAdapterInterface {
 public:
  explicit BytesReader(std::shared_ptr<const std::string> bytes) : bytes_(std::move(bytes)) {}

  size_t size() const override { return bytes_->size(); }

  size_t read(uint64_t position, void* buffer, size_t count, const char* /*what*/) const override {
    if (position >= bytes_->size()) return 0;
    const size_t available = std::min<size_t>(count, bytes_->size() - position);
    std::memcpy(buffer, bytes_->data() + position, available);
    return available;
  }

 private:
  std::shared_ptr<const std::string> bytes_;
};

torch::jit::Module load_module(const std::filesystem::path& path, const ArtifactFile& file,
                               c10::Device device) {
  try {
    torch::jit::Module module = torch::jit::load(std::make_shared<BytesReader>(file.bytes), device);
    module.eval();
    return module;
  } catch (const std::exception& error) {
    throw ArtifactError("artifact " + path.string() + ": cannot be loaded. It was written by torch " +
                        file.metadata.torch_version + ", this program has " + std::string(kTorchDescription) +
                        ". torch says:\n" + torch_message(error));
  }
}

Detection detection_at(const at::Tensor& boxes, const at::Tensor& scores, int64_t index) {
  const float* const box = boxes.const_data_ptr<float>() + 4 * index;
  return {{box[0], box[1], box[2], box[3]}, scores.const_data_ptr<float>()[index]};
}

at::Tensor contiguous_float_on_cpu(const at::Tensor& tensor) {
  return tensor.to(at::TensorOptions().device(at::kCPU).dtype(at::kFloat)).contiguous();
}

std::string shape(const at::Tensor& tensor) {
  return c10::str(tensor.sizes());
}

}  // namespace

Artifact::Artifact(std::filesystem::path path, c10::Device device, Metadata metadata,
                   torch::jit::Module module)
    : path_(std::move(path)), device_(device), metadata_(std::move(metadata)), module_(std::move(module)) {}

Artifact Artifact::load(const std::filesystem::path& path, c10::Device device,
                        const std::optional<std::filesystem::path>& op_library, Trust trust) {
  ArtifactFile file = read_artifact_file(path, trust);
  const auto library = find_op_library(op_library);
  if (library) load_op_library(*library);
  require_ops(file.metadata.ops, device, library);
  torch::jit::Module module = load_module(path, file, device);
  use_full_float32(device);
  return {path, device, std::move(file.metadata), std::move(module)};
}

std::vector<Detection> Artifact::detect(const at::Tensor& image, double score_threshold,
                                        double iou_threshold) const {
  const c10::InferenceMode inference_mode;
  const auto prepared = call_for_tensors("preprocess", {image.to(device_)}, 2);
  const at::Tensor& canvas = prepared[0];
  const at::Tensor& geometry = prepared[1];

  const auto found = call_for_tensors("detect", {canvas.unsqueeze(0), score_threshold, iou_threshold}, 3);
  const int64_t count = found_in_one_canvas(found);
  const at::Tensor canvas_boxes = found[0][0].narrow(0, 0, count);

  const auto restored = call_for_tensors("restore", {canvas_boxes, geometry}, 1);
  if (restored[0].sizes() != canvas_boxes.sizes()) {
    fail("method restore must keep the shape " + shape(canvas_boxes) + ", got " + shape(restored[0]));
  }
  const at::Tensor boxes = contiguous_float_on_cpu(restored[0]);
  const at::Tensor scores = contiguous_float_on_cpu(found[1][0].narrow(0, 0, count));

  std::vector<Detection> detections;
  for (int64_t index = 0; index < count; ++index) {
    detections.push_back(detection_at(boxes, scores, index));
  }
  return detections;
}

Loss Artifact::loss(const at::Tensor& predictions, const at::Tensor& targets) const {
  if (predictions.sizes() != targets.sizes()) {
    throw InputError("predictions and targets must have the same shape, got " + shape(predictions) + " and " +
                     shape(targets));
  }
  if (predictions.dim() < 2 || predictions.size(-1) != 4) {
    throw InputError("predictions must be [N, 4] or [B, N, 4], got " + shape(predictions));
  }
  const c10::InferenceMode inference_mode;
  const auto value = call_for_tensors("loss", {predictions.to(device_), targets.to(device_)}, 1);
  return {value[0].item<double>(), targets.select(-1, 3).count_nonzero().item<int64_t>()};
}

void Artifact::fail(const std::string& reason) const {
  throw ArtifactError("artifact " + path_.string() + ": " + reason);
}

// The number of detections in the result of the method detect, after checking its shapes: boxes [1, K, 4],
// scores [1, K], counts [1].
int64_t Artifact::found_in_one_canvas(const std::vector<at::Tensor>& found) const {
  const at::Tensor& boxes = found[0];
  const int64_t slots = boxes.dim() == 3 ? boxes.size(1) : -1;
  if (boxes.sizes() != at::IntArrayRef{1, slots, 4} || found[1].sizes() != at::IntArrayRef{1, slots} ||
      found[2].sizes() != at::IntArrayRef{1}) {
    fail("method detect must return boxes [1, K, 4], scores [1, K] and counts [1] for one canvas, got " +
         shape(boxes) + ", " + shape(found[1]) + " and " + shape(found[2]));
  }
  const int64_t count = found[2].item<int64_t>();
  if (count < 0 || count > slots) {
    fail("method detect must return counts of 0 to " + std::to_string(slots) + ", got " +
         std::to_string(count));
  }
  return count;
}

c10::IValue Artifact::call(const char* method, std::vector<c10::IValue> arguments) const {
  const auto found = module_.find_method(method);
  if (!found) fail(std::string("has no method ") + method);
  try {
    return (*found)(std::move(arguments));
  } catch (const std::exception& error) {
    fail(std::string("method ") + method + " failed:\n" + torch_message(error));
  }
}

// A method's result, which must be one tensor or a tuple of `count` tensors.
std::vector<at::Tensor> Artifact::call_for_tensors(const char* method, std::vector<c10::IValue> arguments,
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

}  // namespace lensbox
