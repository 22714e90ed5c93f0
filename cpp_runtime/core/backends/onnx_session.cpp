#include "backends/onnx_session.h"

#include <lensbox/version.h>

#include "backends/call.h"
#include "file/errors.h"

#if LENSBOX_WITH_ONNX

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
constexpr const char* kName = "libonnxruntime.so.1";

[[noreturn]] void fail_to_open(const fs::path& library, const std::string& reason) {
  throw std::runtime_error(library.string() + " cannot be used: " + reason + ". " + kEnvironmentVariable +
                           " can name another file.");
}

const OrtApiBase& open_library() {
  const char* const variable = std::getenv(kEnvironmentVariable);
  const bool is_given = variable != nullptr && *variable != '\0';
  const fs::path library = is_given ? fs::absolute(variable) : fs::path(kName);
  // onnxruntime 1.29 and newer report models and machine to their maker, unless told before they start.
  setenv("ORT_DISABLE_TELEMETRY", "1", /*overwrite=*/0);
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
// else libonnxruntime.so.1 beside this library or where the dynamic linker looks. The program does not link
// onnxruntime, because it would then need that version to start, even for other files. Throws
// std::runtime_error if there is none, or one older than the headers of the build.
const OrtApiBase& onnxruntime() {
  static const OrtApiBase& library = [&]() -> const OrtApiBase& {
    const OrtApiBase& opened = open_library();
    Ort::InitApi(opened.GetApi(ORT_API_VERSION));
    end_calls_at_exit();
    return opened;
  }();
  return library;
}

std::string type_name(ONNXTensorElementDataType type) {
  switch (type) {
    case ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT:
      return "Float";
    case ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32:
      return "Int";
    case ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64:
      return "Long";
    default:
      throw std::runtime_error("its outputs must be float, int32 or int64");
  }
}

// Return a copy, as the value's memory belongs to the session.
OnnxOutput copied(const Ort::Value& value) {
  const auto info = value.GetTensorTypeAndShapeInfo();
  OnnxOutput output{{type_name(info.GetElementType()), info.GetShape()}, {}};
  const size_t count = info.GetElementCount();
  const auto copy = [&]<class From, class To>(const From* numbers, std::vector<To> values) {
    values.assign(numbers, numbers + count);
    output.values = std::move(values);
  };
  if (output.type.type == "Float") copy(value.GetTensorData<float>(), std::vector<float>());
  if (output.type.type == "Int") copy(value.GetTensorData<int32_t>(), std::vector<int64_t>());
  if (output.type.type == "Long") copy(value.GetTensorData<int64_t>(), std::vector<int64_t>());
  return output;
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

  // onnxruntime refuses other names, types and sizes than the model's.
  std::vector<OnnxOutput> run(const uint8_t* canvases, const std::array<int64_t, 4>& sizes,
                              std::array<float, 2> thresholds) {
    constexpr std::array kInputs{"images", "score_threshold", "iou_threshold"};
    // onnxruntime takes a pointer to non-const data, and does not write to it.
    auto* const pixels = const_cast<uint8_t*>(canvases);
    const auto scalar = [&](float& value) {
      return Ort::Value::CreateTensor(memory_, &value, 1, nullptr, 0);
    };
    const std::array inputs{
        Ort::Value::CreateTensor(memory_, pixels,
                                 static_cast<size_t>(sizes[0] * sizes[1] * sizes[2] * sizes[3]), sizes.data(),
                                 sizes.size()),
        scalar(thresholds[0]), scalar(thresholds[1])};
    std::vector<const char*> names;
    for (const std::string& output : outputs_) {
      names.push_back(output.c_str());
    }
    const std::vector<Ort::Value> found = session_.Run(
        Ort::RunOptions(nullptr), kInputs.data(), inputs.data(), inputs.size(), names.data(), names.size());
    std::vector<OnnxOutput> outputs;
    for (const Ort::Value& value : found) {
      outputs.push_back(copied(value));
    }
    return outputs;
  }

 private:
  Ort::Env environment_;
  Ort::Session session_;  // may be run from several threads
  Ort::MemoryInfo memory_;
  std::vector<std::string> outputs_;
};

}  // namespace

OnnxSession open_onnx_session(const fs::path& artifact, std::string_view model, const Outputs& outputs,
                              int threads) {
  std::string version;
  try {
    version = onnxruntime().GetVersionString();
  } catch (const std::exception& error) {
    fail_artifact(artifact, std::string("an ONNX file, which needs onnxruntime: ") + error.what());
  }
  try {
    const auto session = std::make_shared<Session>(model, outputs.names(), threads);
    return [session](const uint8_t* canvases, const std::array<int64_t, 4>& sizes,
                     std::array<float, 2> thresholds) { return session->run(canvases, sizes, thresholds); };
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

OnnxSession open_onnx_session(const std::filesystem::path& artifact, std::string_view /*model*/,
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
