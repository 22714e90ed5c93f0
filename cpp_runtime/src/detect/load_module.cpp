#include <ATen/Parallel.h>
#include <caffe2/serialize/read_adapter_interface.h>
#include <torch/csrc/jit/serialization/import.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <string>
#include <utility>

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
    torch::jit::Module module = torch::jit::load(reader_of(file.bytes), device);
    module.eval();
    return module;
  } catch (const std::exception& error) {
    fail_artifact(path, "cannot be loaded. It was written by torch " + file.metadata.torch_version +
                            ", this program has " + kTorchDescription + ". torch says:\n" +
                            torch_message(error));
  }
}

std::shared_ptr<const Methods> load_methods(const std::filesystem::path& path, const ArtifactFile& file,
                                            c10::Device device) {
  const Metadata& metadata = file.metadata;
  if (metadata.file_kind == FileKind::kTorchScript) {
    return std::make_shared<ScriptMethods>(load_script(path, file, device));
  }
  DetectCode detect = metadata.file_kind == FileKind::kOnnx
                          ? open_onnx_session(path, *file.bytes, metadata, at::get_num_threads())
                          : load_package(path, *file.bytes, device);
  return std::make_shared<DetectOnlyMethods>(std::move(detect), metadata, device);
}

void require_ops_of(const ArtifactFile& file, c10::Device device,
                    const std::optional<std::filesystem::path>& library) {
  const Metadata& metadata = file.metadata;
  try {
    // ONNX files do not list the ops that Lensbox calls around them.
    require_ops(metadata.file_kind == FileKind::kOnnx ? DetectOnlyMethods::ops(metadata) : metadata.ops,
                device, library);
  } catch (const ArtifactError& error) {
    if (file.is_verified || metadata.libraries.empty()) throw;
    std::vector<std::string> carried;
    std::ranges::transform(metadata.libraries, std::back_inserter(carried), &CarriedLibrary::name);
    throw ArtifactError(error.what() + (" The artifact carries " + joined(carried)) +
                        ", which is opened only if a public key verifies the file "
                        "(LoadOptions::public_key, lensbox_runner: --public-key).");
  }
}

GpuFloat32 float32_of(const Metadata& metadata, c10::Device device) {
  if (!device.is_cuda()) return GpuFloat32::kUntouched;
  return metadata.precision == Precision::kTf32 ? GpuFloat32::kTf32 : GpuFloat32::kFull;
}

}  // namespace

LoadedModule load_module(const std::filesystem::path& path, const LoadOptions& options) {
  const c10::Device device = parse_device(options.device);
  ArtifactFile file = read_artifact_file(path, options.public_key);
  if (file.metadata.compiled) require_machine(path, *file.metadata.compiled, device);
  if (file.metadata.file_kind == FileKind::kOnnx && !device.is_cpu()) {
    throw DeviceError("device must be cpu for an ONNX file, got " + device.str() + " for " + path.string());
  }
  const auto library = find_op_library(options.op_library);
  if (library) load_op_library(*library);
  if (file.is_verified) {
    open_carried_libraries(path, file.metadata.libraries, file.libraries, file.metadata.ops);
  }
  require_ops_of(file, device, library);
  const Outputs outputs{static_cast<int64_t>(file.metadata.classes.size()), file.metadata.extras};
  auto module = std::make_shared<DetectorModule>(path.string(), load_methods(path, file, device), outputs,
                                                 float32_of(file.metadata, device));
  return {device, std::move(file.metadata), std::move(module)};
}

}  // namespace lensbox
