#include <lensbox/version.h>

#include "file/errors.h"
#include "model/detector_module.h"

#if LENSBOX_WITH_ONNX

#include <ATen/ATen.h>
#include <dlfcn.h>
#define ORT_API_MANUAL_INIT  // the library is opened, not linked
#include <onnxruntime_cxx_api.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <utility>

namespace lensbox {
namespace {

namespace fs = std::filesystem;

constexpr const char* kEnvironmentVariable = "LENSBOX_ONNXRUNTIME";
constexpr const char* kBuiltWith = LENSBOX_ONNXRUNTIME_LIBRARY;
constexpr const char* kSystemLibrary = "libonnxruntime.so.1";

[[noreturn]] void fail_to_open(const fs::path& library, const std::string& reason) {
  throw std::runtime_error(library.string() + " cannot be used: " + reason + ". " + kEnvironmentVariable +
                           " can name another file.");
}

const OrtApiBase& open_library() {
  const char* const variable = std::getenv(kEnvironmentVariable);
  const bool is_given = variable != nullptr && *variable != '\0';
  std::error_code error;
  const fs::path library = is_given                        ? fs::absolute(variable)
                           : fs::exists(kBuiltWith, error) ? fs::path(kBuiltWith)
                                                           : fs::path(kSystemLibrary);
  void* const handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  void* const function = handle == nullptr ? nullptr : dlsym(handle, "OrtGetApiBase");
  if (function == nullptr) fail_to_open(library, dlerror());
  const OrtApiBase& base = *reinterpret_cast<decltype(&OrtGetApiBase)>(function)();
  if (base.GetApi(ORT_API_VERSION) == nullptr) {
    fail_to_open(library, std::string("it is onnxruntime ") + base.GetVersionString() + ", and must be 1." +
                              std::to_string(ORT_API_VERSION) + " or newer");
  }
  return base;
}

// Return onnxruntime, opened at the first call: the file in the environment variable LENSBOX_ONNXRUNTIME,
// else the file that the build found, else libonnxruntime.so.1 where the dynamic linker looks. The program
// does not link onnxruntime, because it would then need that version to start, even for other files. Throws
// std::runtime_error if there is none, or one older than the headers of the build.
const OrtApiBase& onnxruntime() {
  static const OrtApiBase& library = [&]() -> const OrtApiBase& {
    const OrtApiBase& opened = open_library();
    Ort::InitApi(opened.GetApi(ORT_API_VERSION));
    return opened;
  }();
  return library;
}

at::ScalarType scalar_type(ONNXTensorElementDataType type) {
  switch (type) {
    case ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT:
      return at::kFloat;
    case ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32:
      return at::kInt;
    case ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64:
      return at::kLong;
    default:
      TORCH_CHECK(false, "its outputs must be float, int32 or int64");
  }
}

// Return a copy, as the value's memory belongs to the session.
at::Tensor to_tensor(Ort::Value& value) {
  const auto info = value.GetTensorTypeAndShapeInfo();
  return at::from_blob(value.GetTensorMutableRawData(), info.GetShape(), scalar_type(info.GetElementType()))
      .clone();
}

Ort::SessionOptions session_options(int threads) {
  Ort::SessionOptions options;
  options.SetIntraOpNumThreads(threads);
  options.SetInterOpNumThreads(1);
  // Log only errors that end a call: the warnings are advice for the export.
  options.SetLogSeverityLevel(ORT_LOGGING_LEVEL_FATAL);
  // Do not accept onnxruntime's own format, which read_artifact_file does not check.
  options.AddConfigEntry("session.load_model_format", "ONNX");
  return options;
}

class Session {
 public:
  Session(std::string_view model, std::vector<std::string> outputs, int threads)
      : environment_(ORT_LOGGING_LEVEL_FATAL),
        session_(environment_, model.data(), model.size(), session_options(threads)),
        memory_(Ort::MemoryInfo::CreateCpu(OrtDeviceAllocator, OrtMemTypeCPU)),
        outputs_(std::move(outputs)) {}

  // images: uint8 [B, c, h, w] on the CPU. onnxruntime refuses other names, types and sizes than the model's.
  Tensors run(const Tensors& images_and_thresholds) {
    constexpr std::array kInputs{"images", "score_threshold", "iou_threshold"};
    const at::Tensor& canvases = images_and_thresholds[0];
    std::array thresholds{images_and_thresholds[1].item<float>(), images_and_thresholds[2].item<float>()};
    // onnxruntime takes a pointer to non-const data, and does not write to it.
    auto* const pixels = const_cast<uint8_t*>(canvases.const_data_ptr<uint8_t>());
    const at::IntArrayRef shape = canvases.sizes();
    const auto scalar = [&](float& value) {
      return Ort::Value::CreateTensor(memory_, &value, 1, nullptr, 0);
    };
    const std::array inputs{
        Ort::Value::CreateTensor(memory_, pixels, canvases.numel(), shape.data(), shape.size()),
        scalar(thresholds[0]), scalar(thresholds[1])};
    std::vector<const char*> names;
    for (const std::string& output : outputs_) {
      names.push_back(output.c_str());
    }
    std::vector<Ort::Value> found = session_.Run(Ort::RunOptions(nullptr), kInputs.data(), inputs.data(),
                                                 inputs.size(), names.data(), names.size());
    Tensors tensors;
    for (Ort::Value& value : found) {
      tensors.push_back(to_tensor(value));
    }
    return tensors;
  }

 private:
  Ort::Env environment_;
  Ort::Session session_;  // may be run from several threads
  Ort::MemoryInfo memory_;
  std::vector<std::string> outputs_;
};

}  // namespace

Code open_onnx_session(const fs::path& artifact, std::string_view model, const Outputs& outputs,
                       int threads) {
  std::string version;
  try {
    version = onnxruntime().GetVersionString();
  } catch (const std::exception& error) {
    fail_artifact(artifact, std::string("an ONNX file, which needs onnxruntime: ") + error.what());
  }
  try {
    const auto session = std::make_shared<Session>(model, outputs.names(), threads);
    return [session](const Tensors& inputs) { return session->run(inputs); };
  } catch (const std::exception& error) {
    fail_artifact(artifact, "cannot be loaded by onnxruntime " + version + ":\n  " + error.what());
  }
}

std::optional<std::string> onnxruntime_version() {
  try {
    return onnxruntime().GetVersionString();
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

}  // namespace lensbox

#else

namespace lensbox {

Code open_onnx_session(const std::filesystem::path& artifact, std::string_view /*model*/,
                       const Outputs& /*outputs*/, int /*threads*/) {
  fail_artifact(artifact,
                "an ONNX file, which needs onnxruntime, and this program was built without it: build it with "
                "-DLENSBOX_ONNX=ON -DONNXRUNTIME_ROOT=<a folder that has onnxruntime's headers and library>");
}

std::optional<std::string> onnxruntime_version() {
  return std::nullopt;
}

}  // namespace lensbox

#endif
