#include "model/onnx_session.h"

#include <lensbox/error.h>
#include <lensbox/version.h>

#if LENSBOX_WITH_ONNX

#include <ATen/ATen.h>
#include <dlfcn.h>
#define ORT_API_MANUAL_INIT  // the library is opened, not linked
#include <onnxruntime_cxx_api.h>

#include <array>
#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <utility>

namespace lensbox {
namespace {

constexpr const char* kEnvironmentVariable = "LENSBOX_ONNXRUNTIME";
constexpr const char* kBuiltWith = LENSBOX_ONNXRUNTIME_LIBRARY;
constexpr const char* kSystemLibrary = "libonnxruntime.so.1";

[[noreturn]] void fail_to_open(const std::filesystem::path& library, const std::string& reason) {
  throw std::runtime_error(library.string() + " cannot be used: " + reason + ". " + kEnvironmentVariable +
                           " can name another file.");
}

std::filesystem::path choose_library() {
  const char* const variable = std::getenv(kEnvironmentVariable);
  if (variable != nullptr && *variable != '\0') return std::filesystem::absolute(variable);
  std::error_code error;
  return std::filesystem::exists(kBuiltWith, error) ? kBuiltWith : kSystemLibrary;
}

const OrtApiBase& open_library(const std::filesystem::path& library) {
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

// Return onnxruntime, opened at the first call: the file that the environment variable LENSBOX_ONNXRUNTIME
// names, else the one that the build found, else libonnxruntime.so.1 where the dynamic linker looks. It is
// not linked: a program with onnxruntime would need its very version to start, even for other files. Throws
// std::runtime_error if there is none, or one older than the headers of the build.
const OrtApiBase& onnxruntime() {
  static const OrtApiBase& library = open_library(choose_library());
  return library;
}

// In the order of ONNXTensorElementDataType.
constexpr const char* kTypes[] = {"undefined", "float",  "uint8",     "int8",       "uint16",  "int16",
                                  "int32",     "int64",  "string",    "bool",       "float16", "double",
                                  "uint32",    "uint64", "complex64", "complex128", "bfloat16"};

OnnxValue described(std::string name, const Ort::TypeInfo& info) {
  if (info.GetONNXType() != ONNX_TYPE_TENSOR) return {std::move(name), "no tensor", {}};
  const auto tensor = info.GetTensorTypeAndShapeInfo();
  const auto type = static_cast<size_t>(tensor.GetElementType());
  return {std::move(name), type < std::size(kTypes) ? kTypes[type] : "type " + std::to_string(type),
          tensor.GetShape()};
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

// A value, and the session that its memory is of, which must not end before it.
struct Output {
  std::shared_ptr<const OnnxSession> session;
  Ort::Value value;
};

// In the memory of the value.
at::Tensor to_tensor(std::shared_ptr<Output> output) {
  const auto info = output->value.GetTensorTypeAndShapeInfo();
  void* const data = output->value.GetTensorMutableRawData();
  return at::from_blob(
      data, info.GetShape(), [kept = std::move(output)](void*) {}, scalar_type(info.GetElementType()));
}

Ort::SessionOptions session_options(int threads) {
  Ort::SessionOptions options;
  options.SetIntraOpNumThreads(threads);
  options.SetInterOpNumThreads(1);
  // Only what ends a call: the rest is advice to whoever exports.
  options.SetLogSeverityLevel(ORT_LOGGING_LEVEL_FATAL);
  // Not onnxruntime's own format, which read_onnx_model does not check.
  options.AddConfigEntry("session.load_model_format", "ONNX");
  return options;
}

const OrtApiBase& initialized() {
  const OrtApiBase& library = onnxruntime();
  Ort::InitApi(library.GetApi(ORT_API_VERSION));
  return library;
}

const OrtApiBase& opened(const std::filesystem::path& artifact) {
  try {
    static const OrtApiBase& library = initialized();
    return library;
  } catch (const std::exception& error) {
    throw ArtifactError("artifact " + artifact.string() +
                        ": an ONNX file, which needs onnxruntime: " + error.what());
  }
}

class Session final : public OnnxSession, public std::enable_shared_from_this<Session> {
 public:
  Session(std::string_view model, int threads)
      : environment_(ORT_LOGGING_LEVEL_FATAL),
        session_(environment_, model.data(), model.size(), session_options(threads)),
        memory_(Ort::MemoryInfo::CreateCpu(OrtDeviceAllocator, OrtMemTypeCPU)) {
    for (size_t i = 0; i < session_.GetInputCount(); ++i) {
      inputs_.push_back(
          described(session_.GetInputNameAllocated(i, allocator_).get(), session_.GetInputTypeInfo(i)));
    }
    for (size_t i = 0; i < session_.GetOutputCount(); ++i) {
      outputs_.push_back(
          described(session_.GetOutputNameAllocated(i, allocator_).get(), session_.GetOutputTypeInfo(i)));
    }
    for (const OnnxValue& output : outputs_) {
      output_names_.push_back(output.name.c_str());
    }
  }

  const std::vector<OnnxValue>& inputs() const override { return inputs_; }
  const std::vector<OnnxValue>& outputs() const override { return outputs_; }

  std::vector<at::Tensor> run(const at::Tensor& canvases, double score_threshold,
                              double iou_threshold) const override {
    constexpr std::array kInputs{"images", "score_threshold", "iou_threshold"};
    std::array thresholds{static_cast<float>(score_threshold), static_cast<float>(iou_threshold)};
    // onnxruntime takes no pointer to const, and changes nothing.
    auto* const pixels = const_cast<uint8_t*>(canvases.const_data_ptr<uint8_t>());
    const at::IntArrayRef shape = canvases.sizes();
    const auto scalar = [&](float& value) {
      return Ort::Value::CreateTensor(memory_, &value, 1, nullptr, 0);
    };
    const std::array inputs{
        Ort::Value::CreateTensor(memory_, pixels, canvases.numel(), shape.data(), shape.size()),
        scalar(thresholds[0]), scalar(thresholds[1])};
    std::vector<Ort::Value> found = session_.Run(Ort::RunOptions(nullptr), kInputs.data(), inputs.data(),
                                                 inputs.size(), output_names_.data(), output_names_.size());
    std::vector<at::Tensor> tensors;
    for (Ort::Value& value : found) {
      tensors.push_back(to_tensor(std::make_shared<Output>(Output{shared_from_this(), std::move(value)})));
    }
    return tensors;
  }

 private:
  Ort::Env environment_;
  mutable Ort::Session session_;  // whose Run may be called from several threads, but is not const
  Ort::MemoryInfo memory_;
  Ort::AllocatorWithDefaultOptions allocator_;
  std::vector<OnnxValue> inputs_;
  std::vector<OnnxValue> outputs_;
  std::vector<const char*> output_names_;
};

}  // namespace

std::shared_ptr<const OnnxSession> open_onnx_session(const std::filesystem::path& artifact,
                                                     std::string_view model, int threads) {
  const OrtApiBase& library = opened(artifact);
  try {
    return std::make_shared<const Session>(model, threads);
  } catch (const std::exception& error) {
    throw ArtifactError("artifact " + artifact.string() + ": cannot be loaded by onnxruntime " +
                        library.GetVersionString() + ":\n  " + error.what());
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

std::shared_ptr<const OnnxSession> open_onnx_session(const std::filesystem::path& artifact,
                                                     std::string_view /*model*/, int /*threads*/) {
  throw ArtifactError("artifact " + artifact.string() +
                      ": an ONNX file, which needs onnxruntime, and this program was built without it: build "
                      "it with -DLENSBOX_ONNX=ON -DONNXRUNTIME_ROOT=<a folder that has onnxruntime's headers "
                      "and library>");
}

std::optional<std::string> onnxruntime_version() {
  return std::nullopt;
}

}  // namespace lensbox

#endif
