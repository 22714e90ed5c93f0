#include <ATen/Parallel.h>
#include <caffe2/serialize/read_adapter_interface.h>
#include <torch/csrc/jit/serialization/import.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "detect/steps.h"
#include "file/artifact_file.h"
#include "model/call.h"
#include "model/detector_module.h"
#include "model/machine.h"
#include "model/op_library.h"
#include "model/torch_errors.h"

namespace lensbox {
namespace {

class BytesReader : public caffe2::serialize::ReadAdapterInterface {
 public:
  explicit BytesReader(std::string_view bytes) : bytes_(bytes) {}

  size_t size() const override { return bytes_.size(); }

  size_t read(uint64_t position, void* buffer, size_t count, const char* /*what*/) const override {
    if (position >= bytes_.size()) return 0;
    const size_t available = std::min<size_t>(count, bytes_.size() - position);
    std::memcpy(buffer, bytes_.data() + position, available);
    return available;
  }

 private:
  std::string_view bytes_;
};

torch::jit::Module load_script(const std::filesystem::path& path, const ArtifactFile& file,
                               c10::Device device) {
  try {
    torch::jit::Module module = torch::jit::load(std::make_shared<BytesReader>(*file.bytes), device);
    module.eval();
    return module;
  } catch (const std::exception& error) {
    fail_artifact(path, "cannot be loaded. It was written by torch " + file.metadata.torch_version +
                            ", this program has " + kTorchDescription + ". torch says:\n" +
                            torch_message(error));
  }
}

Methods load_methods(const std::filesystem::path& path, const ArtifactFile& file, const Outputs& outputs,
                     c10::Device device) {
  const Metadata& metadata = file.metadata;
  if (metadata.file_kind == FileKind::kTorchScript) {
    return script_methods(load_script(path, file, device), outputs);
  }
  const Call call;  // these formats compute, or start threads, as they are loaded
  Code detect, loss;
  switch (metadata.file_kind) {
    case FileKind::kTorchScript:
      break;
    case FileKind::kProgram:
      detect = load_graph(path, file.bytes, "detect", device);
      if (has_loss(metadata)) loss = load_graph(path, file.bytes, "loss", device);
      break;
    case FileKind::kPackage:
      detect = load_package(path, *file.bytes, device);
      break;
    case FileKind::kOnnx:
      detect = open_onnx_session(path, *file.bytes, outputs, at::get_num_threads());
  }
  return methods_around(std::move(detect), std::move(loss), metadata);
}

}  // namespace

Detector::Parts load_module(const std::filesystem::path& path, const LoadOptions& options) {
  const c10::Device device = parse_device(options.device);
  ArtifactFile file = read_artifact_file(path, options.public_key);
  if (file.metadata.compiled) require_machine(path, *file.metadata.compiled, device);
  const bool is_onnx = file.metadata.file_kind == FileKind::kOnnx;
  if (is_onnx && !device.is_cpu()) {
    throw DeviceError("device must be cpu for an ONNX file, got " + device.str() + " for " + path.string());
  }
  // ONNX files do not list the ops that Lensbox calls around them.
  require_ops(is_onnx ? ops_around(file.metadata) : file.metadata.ops, device,
              open_op_libraries(options.op_libraries));
  if (device.is_cuda()) set_gpu_float32(path.string(), file.metadata.precision == Precision::kTf32);
  [[maybe_unused]] static const bool is_set = (end_calls_at_exit(), true);  // also without an op library
  const Outputs outputs{static_cast<int64_t>(file.metadata.classes.size()), file.metadata.extras};
  const auto module =
      std::make_shared<DetectorModule>(path.string(), outputs, load_methods(path, file, outputs, device));
  return {device, std::move(file.metadata), module};
}

}  // namespace lensbox
