#include <ATen/Parallel.h>
#include <caffe2/serialize/read_adapter_interface.h>
#include <torch/csrc/jit/serialization/import.h>

#include <string>
#include <utility>
#include <vector>

#include "detect/steps.h"
#include "file/artifact_file.h"
#include "file/errors.h"
#include "model/machine.h"
#include "model/methods.h"
#include "model/op_library.h"

namespace lensbox {
namespace {

torch::jit::Module load_script(const std::filesystem::path& path, const ArtifactFile& file,
                               c10::Device device) {
  try {
    torch::jit::Module module = torch::jit::load(reader_of(*file.bytes), device);
    module.eval();
    return module;
  } catch (const std::exception& error) {
    fail_artifact(path, "cannot be loaded. It was written by torch " + file.metadata.torch_version +
                            ", this program has " + kTorchDescription + ". torch says:\n" +
                            torch_message(error));
  }
}

std::shared_ptr<const DetectorModule> load_methods(const std::filesystem::path& path,
                                                   const ArtifactFile& file, c10::Device device) {
  const Metadata& metadata = file.metadata;
  const Outputs outputs{static_cast<int64_t>(metadata.classes.size()), metadata.extras};
  Code detect, loss;
  switch (metadata.file_kind) {
    case FileKind::kTorchScript:
      return std::make_shared<ScriptModule>(path.string(), load_script(path, file, device), outputs);
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
  return std::make_shared<DetectOnlyModule>(path.string(), std::move(detect), metadata, outputs,
                                            std::move(loss));
}

// ONNX files do not list the ops that Lensbox calls around them.
std::vector<std::string> ops_of(const Metadata& metadata) {
  return metadata.file_kind == FileKind::kOnnx ? DetectOnlyModule::ops(metadata) : metadata.ops;
}

}  // namespace

LoadedModule load_module(const std::filesystem::path& path, const LoadOptions& options) {
  const c10::Device device = parse_device(options.device);
  ArtifactFile file = read_artifact_file(path, options.public_key);
  if (file.metadata.compiled) require_machine(path, *file.metadata.compiled, device);
  if (file.metadata.file_kind == FileKind::kOnnx && !device.is_cpu()) {
    throw DeviceError("device must be cpu for an ONNX file, got " + device.str() + " for " + path.string());
  }
  require_ops(ops_of(file.metadata), device, open_op_libraries(options.op_libraries));
  if (device.is_cuda()) set_gpu_float32(path.string(), file.metadata.precision == Precision::kTf32);
  auto module = load_methods(path, file, device);
  return {device, std::move(file.metadata), std::move(module)};
}

}  // namespace lensbox
