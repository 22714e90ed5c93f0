#include <caffe2/serialize/read_adapter_interface.h>
#include <torch/csrc/jit/serialization/import.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "backends/call.h"
#include "file/artifact_file.h"
#include "model/detector_module.h"
#include "model/machine.h"
#include "model/op_library.h"
#include "model/torch_errors.h"
#include "tensors/torch_backend.h"

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

ArtifactMethods load_methods(const std::filesystem::path& path, const ArtifactFile& file,
                             const Outputs& outputs, c10::Device device) {
  const Metadata& metadata = file.metadata;
  if (metadata.file_kind == FileKind::kTorchScript) {
    return script_methods(load_script(path, file, device), outputs);
  }
  const Call call;  // these formats compute, or start threads, as they are loaded
  if (metadata.file_kind == FileKind::kPackage) {
    return default_methods(load_package(path, *file.bytes, device), nullptr, metadata);
  }
  Code loss;
  if (has_loss(metadata)) loss = load_graph(path, file.bytes, "loss", device);
  return default_methods(load_graph(path, file.bytes, "detect", device), std::move(loss), metadata);
}

}  // namespace

std::shared_ptr<Backend> load_with_torch(const std::filesystem::path& path, ArtifactFile file,
                                         const std::string& device_name, const LoadOptions& options) {
  const c10::Device device(device_name);
  const Metadata& metadata = file.metadata;
  if (metadata.compiled) require_machine(path, *metadata.compiled, device);
  require_ops(metadata.ops, device, open_op_libraries(options.op_libraries));
  const Outputs outputs = outputs_of(metadata);
  const auto module =
      std::make_shared<DetectorModule>(path.string(), outputs, load_methods(path, file, outputs, device),
                                       metadata.precision == Precision::kTf32);
  return std::make_shared<TorchBackend>(device, metadata.reading.canvas, module, options.threads,
                                        options.stream);
}

}  // namespace lensbox
