#include "compiled_methods.h"

#include <ATen/ATen.h>
#include <ATen/core/Dict.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/DeviceGuard.h>
#include <lensbox/error.h>
#include <link.h>
#include <torch/csrc/inductor/aoti_package/model_package_loader.h>

#include <algorithm>
#include <optional>
#include <system_error>
#include <thread>

#include "canvas_geometry.h"
#include "private_file.h"
#include "shared_library_file.h"
#include "torch_error.h"
#include "torch_version.h"

namespace lensbox {
namespace {

namespace fs = std::filesystem;
using Loader = torch::inductor::AOTIModelPackageLoader;

constexpr const char* kModel = "detect";
// Of the CPU; further calls wait for one of them. They share the weights.
constexpr size_t kMostCalls = 8;

// The compiled code asks for libtorch.so, an empty library that a program linked with its parts may not have
// opened. It lies beside them.
void open_libtorch() {
  fs::path folder;
  const auto find = [](dl_phdr_info* object, size_t /*size*/, void* found) {
    const fs::path library = object->dlpi_name;
    if (library.filename() != "libtorch_cpu.so") return 0;
    *static_cast<fs::path*>(found) = library.parent_path();
    return 1;
  };
  // If it fails, the loader says what is missing.
  if (dl_iterate_phdr(find, &folder) != 0) open_shared_library(folder / "libtorch.so");
}

std::unique_ptr<Loader> load(const fs::path& artifact, std::string_view bytes, c10::Device device) {
  const std::string named = "artifact " + artifact.string() + ": ";
  const size_t processors = std::max(1U, std::thread::hardware_concurrency());
  open_libtorch();
  try {
    // The loader reads files alone, and needs this one no longer than while it loads.
    const PrivateFolder folder;
    const fs::path file = folder.path() / "detector.pt2";
    write_private_file(file, bytes);
    const bool single = device.is_cuda();
    return std::make_unique<Loader>(file.string(), kModel, single,
                                    single ? 1 : std::min(kMostCalls, processors), device.index());
  } catch (const std::system_error& error) {
    throw ArtifactError(named + "cannot be written to a temporary file: " + error.what());
  } catch (const std::exception& error) {
    throw ArtifactError(named + "cannot be loaded on " + device.str() + " by " + kTorchDescription +
                        ". torch says:\n" + torch_message(error));
  }
}

at::Tensor giou_loss(const at::Tensor& predictions, const at::Tensor& targets) {
  using Loss = at::Tensor(const at::Tensor&, const at::Tensor&, const std::optional<at::Tensor>&, double);
  static const auto op =
      c10::Dispatcher::singleton().findSchemaOrThrow("lensbox::masked_giou_loss", "").typed<Loss>();
  return op.call(predictions, targets, std::nullopt, 1e-7);
}

}  // namespace

CompiledMethods::CompiledMethods(const fs::path& artifact, std::string_view bytes, const Metadata& metadata,
                                 c10::Device device)
    : device_(device),
      canvas_(*metadata.reading.canvas),
      methods_(metadata.methods),
      outputs_{"boxes", "scores", "counts"},
      loader_(load(artifact, bytes, device)) {
  if (!metadata.classes.empty()) outputs_.push_back("labels");
  for (const Extra& extra : metadata.extras) {
    outputs_.push_back(extra.name);
  }
}

CompiledMethods::~CompiledMethods() = default;

bool CompiledMethods::has(const std::string& name) const {
  return std::ranges::find(methods_, name) != methods_.end();
}

c10::IValue CompiledMethods::call(const std::string& name, std::vector<c10::IValue> arguments) const {
  const auto tensor = [&](size_t index) { return arguments.at(index).toTensor(); };
  if (name == "preprocess") {
    const auto windows = arguments.at(1).toOptional<at::Tensor>();
    auto [canvases, geometry] = fit_to_canvases(arguments.at(0).toTensorVector(), windows, canvas_);
    return c10::ivalue::Tuple::create(std::move(canvases), std::move(geometry));
  }
  if (name == "restore") return restore_canvas_boxes(tensor(0), tensor(1));
  if (name == "restore_points") return restore_canvas_points(tensor(0), tensor(1));
  if (name == "loss") return giou_loss(tensor(0), tensor(1));
  const auto found = detect(tensor(0), arguments.at(1).toDouble(), arguments.at(2).toDouble());
  if (name == "detect_named") return detect_named(found);
  return c10::ivalue::Tuple::create(found[0], found[1], found[2]);
}

std::vector<at::Tensor> CompiledMethods::detect(const at::Tensor& canvases, double score_threshold,
                                                double iou_threshold) const {
  const bool fits =
      canvases.dim() == 4 && canvases.size(0) > 0 && canvases.device() == device_ &&
      canvases.sizes().slice(1) == at::IntArrayRef{canvas_.channels, canvas_.height, canvas_.width};
  TORCH_CHECK(fits && canvases.scalar_type() == at::kByte, "canvases must be uint8 [B, ", canvas_.channels,
              ", ", canvas_.height, ", ", canvas_.width, "] on ", device_, " with B at least 1, got ",
              canvases.scalar_type(), " ", canvases.sizes(), " on ", canvases.device());
  // On the CPU whatever the device: there they are read without waiting for it.
  const auto number = [](double value) { return at::scalar_tensor(value, at::dtype(at::kDouble)); };
  const std::vector<at::Tensor> inputs{canvases.contiguous(), number(score_threshold), number(iou_threshold)};
  const c10::DeviceGuard on_device(device_);
  std::unique_lock<std::mutex> turn(turn_, std::defer_lock);
  if (device_.is_cuda()) turn.lock();
  // On the current stream.
  std::vector<at::Tensor> found = loader_->run(inputs);
  TORCH_CHECK(found.size() == outputs_.size(), "it must give ", outputs_.size(), " tensors, got ",
              found.size());
  return found;
}

c10::IValue CompiledMethods::detect_named(const std::vector<at::Tensor>& found) const {
  c10::Dict<std::string, at::Tensor> named;
  for (size_t i = 0; i < found.size(); ++i) {
    named.insert(outputs_[i], found[i]);
  }
  return named;
}

}  // namespace lensbox
