#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <c10/core/InferenceMode.h>
#include <lensbox/torch/tensors.h>
#include <torch/csrc/inductor/aoti_package/model_package_loader.h>
#include <torch/csrc/jit/serialization/import.h>
#include <torch/version.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <fstream>
#include <iterator>
#include <memory>

#include "bench_timing.h"
#include "commands.h"
#include "model/onnx_session.h"
#include "process.h"
#include "streams.h"

namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMostCallers = 8;  // further ones wait

// Return the self-test's picture, repeated or cropped to the size of the canvas: uint8 [c, h, w].
at::Tensor picture(const lensbox::Metadata& metadata) {
  const lensbox::Canvas& canvas = metadata.reading.canvas;
  const lensbox::SelfTest& test = metadata.self_test;
  at::Tensor image = at::tensor(at::ArrayRef<uint8_t>(test.pixels), at::kByte).reshape(test.image_shape);
  const std::array<int64_t, 3> shape{canvas.channels, canvas.height, canvas.width};
  for (int64_t side = 0; side < 3; ++side) {
    std::array<int64_t, 3> times{1, 1, 1};
    times[side] = (shape[side] + image.size(side) - 1) / image.size(side);
    image = image.repeat(times).narrow(side, 0, shape[side]);
  }
  return image.contiguous();
}

// Set TF32 for the bare module as the detector's own calls do.
void use_precision_of(const lensbox::Detector& detector) {
  if (!device_of(detector).is_cuda()) return;
  const auto& precision = detector.metadata().precision;
  const bool tf32 = precision && precision->dtype == lensbox::Precision::Dtype::kTf32;
  for (const auto op : {at::Float32Op::CONV, at::Float32Op::RNN, at::Float32Op::MATMUL}) {
    at::globalContext().setFloat32Precision(at::Float32Backend::CUDA, op,
                                            tf32 ? at::Float32Precision::TF32 : at::Float32Precision::IEEE);
  }
}

std::string read_bytes(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

// Return a call of the method detect without Lensbox's code around it.
std::function<void()> bare_detect(const lensbox::Detector& detector, const std::string& path,
                                  const at::Tensor& canvases, double score, double iou) {
  const c10::Device device = device_of(detector);
  if (detector.metadata().file_kind == lensbox::FileKind::kOnnx) {
    const auto session = lensbox::open_onnx_session(path, read_bytes(path), at::get_num_threads());
    return [session, canvases, score, iou] { session->run(canvases, score, iou); };
  }
  if (detector.metadata().file_kind == lensbox::FileKind::kPackage) {
    const auto loader = std::make_shared<torch::inductor::AOTIModelPackageLoader>(
        path, "detect", /*run_single_threaded=*/false, kMostCallers, device.index());
    const auto number = [](double value) { return at::scalar_tensor(value, at::dtype(at::kDouble)); };
    return [loader, inputs = std::vector<at::Tensor>{canvases, number(score), number(iou)}] {
      const c10::InferenceMode inference_mode;
      loader->run(inputs);
    };
  }
  const auto module = std::make_shared<torch::jit::Module>(torch::jit::load(path, device));
  module->eval();
  return [module, canvases, score, iou] {
    const c10::InferenceMode inference_mode;
    module->get_method("detect")({canvases, score, iou});
  };
}

// Return the ways that `bench` times; they share their input, the picture of the self-test as canvases:
//   whole   detect_photos: canvas-sized images in the CPU's memory become detections
//   detect  detect_canvases: canvases on the device become boxes on the device
//   module  the artifact's method detect called through torch alone, with torch's own settings but for the
//           artifact's precision on GPUs, which then holds for the process; of a package its bare code,
//           of an ONNX file a session of onnxruntime
std::vector<BenchWay> bench_ways(const lensbox::Detector& detector, const std::string& path, int64_t batch) {
  const at::Tensor image = picture(detector.metadata());
  use_precision_of(detector);
  std::vector<lensbox::Photo> photos;
  for (int64_t i = 0; i < batch; ++i) {
    photos.push_back(lensbox::Photo::of(image.clone()));
  }
  const at::Tensor canvases = image.unsqueeze(0).repeat({batch, 1, 1, 1}).to(device_of(detector));
  return {
      {"whole", [&detector, photos] { detect_photos(detector, photos); }},
      {"detect", [&detector, canvases] { detect_canvases(detector, canvases); }},
      {"module", bare_detect(detector, path, canvases, detector.metadata().score_threshold,
                             detector.metadata().iou_threshold)},
  };
}

constexpr double kWarmUpSeconds = 0.3;
constexpr int kWarmUpCalls = 5;               // torch watches the first calls and then compiles
constexpr double kSecondsBetweenWaits = 0.1;  // else a GPU's queue would hold seconds of work
constexpr int kRounds = 5;                    // in which the ways take turns
constexpr double kMegabyte = 1e6;

double rounded(double value, int digits) {
  const double scale = std::pow(10, digits);
  return std::round(value * scale) / scale;
}

Json megabytes(const std::optional<int64_t>& bytes) {
  return bytes ? Json(rounded(static_cast<double>(*bytes) / kMegabyte, 1)) : Json();
}

void warm_up(const BenchWay& way, c10::Device device) {
  sample_latencies(std::vector<BenchWay>(kWarmUpCalls, way), device, 0);
  sample_latencies({way}, device, kWarmUpSeconds);
}

Json bench_batch(const lensbox::Detector& detector, const ModelOptions& model, const BenchOptions& options,
                 int64_t batch) {
  const c10::Device device = device_of(detector);
  const std::vector<BenchWay> ways = bench_ways(detector, model.artifact.string(), batch);
  for (const BenchWay& way : ways) {
    warm_up(way, device);
  }
  const auto latencies = sample_latencies(ways, device, options.seconds);

  std::vector<double> medians;
  for (const std::vector<double>& samples : latencies) {
    medians.push_back(percentile(samples, 0.5));
  }
  std::vector<double> images_per_second(ways.size());
  std::vector<PeakMemory> peaks(ways.size());
  for (int round = 0; round < kRounds; ++round) {
    for (size_t i = 0; i < ways.size(); ++i) {
      const double calls = std::clamp(kSecondsBetweenWaits * 1e3 / medians[i], 1.0, 100.0);
      reset_peak_memory(device);
      images_per_second[i] += static_cast<double>(batch) / kRounds *
                              calls_per_second(ways[i], device, options.seconds / kRounds, options.callers,
                                               static_cast<size_t>(calls));
      peaks[i] = peak_memory(device);
    }
  }

  Json result = {{"batch", batch}};
  for (size_t i = 0; i < ways.size(); ++i) {
    result[ways[i].name] = {
        {"calls", latencies[i].size()},
        {"p50_ms", rounded(medians[i], 4)},
        {"p90_ms", rounded(percentile(latencies[i], 0.9), 4)},
        {"p99_ms", rounded(percentile(latencies[i], 0.99), 4)},
        {"images_per_s", rounded(images_per_second[i], 1)},
        {"peak_memory_mb", megabytes(peaks[i].process)},
    };
    if (device.is_cuda()) result[ways[i].name]["peak_gpu_memory_mb"] = megabytes(peaks[i].device);
  }
  // The last way is the bare module.
  for (size_t i = 0; i + 1 < ways.size(); ++i) {
    result[ways[i].name]["p50_to_module"] = rounded(medians[i] / medians.back(), 3);
    result[ways[i].name]["images_per_s_to_module"] =
        rounded(images_per_second[i] / images_per_second.back(), 3);
  }
  return result;
}

// Return the milliseconds from the start of the process to the first boxes.
Json time_start(const lensbox::Detector& detector, double loading) {
  const lensbox::LoadTimes& load = detector.load_times();
  const lensbox::SelfTest& test = detector.metadata().self_test;
  const at::Tensor image =
      at::tensor(at::ArrayRef<uint8_t>(test.pixels), at::kByte).reshape(test.image_shape);
  const auto begin = std::chrono::steady_clock::now();
  detect_photos(detector, {lensbox::Photo::of(image)});
  const double first =
      std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
  const auto to_main = milliseconds_to_main();
  Json parts = {
      {"process_to_main_ms", to_main ? Json(rounded(*to_main, 0)) : Json()},
      {"read_and_check_ms", rounded(load.checking, 1)},
      {"op_library_ms", rounded(load.op_library, 1)},
      {"torch_load_ms", rounded(load.module, 1)},
      {"other_loading_ms", rounded(loading - load.checking - load.op_library - load.module, 1)},
      {"first_detect_ms", rounded(first, 1)},
  };
  if (to_main) parts["to_first_boxes_ms"] = rounded(*to_main + loading + first, 0);
  return parts;
}

}  // namespace

ExitCode run_bench(const ModelOptions& model, const BenchOptions& options) {
  const auto begin = std::chrono::steady_clock::now();
  lensbox::Detector detector = load(model);
  const double loading =
      std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
  Json document = {
      {"device", device_of(detector).str()},
      {"threads", at::get_num_threads()},
      {"libtorch", TORCH_VERSION},
      {"capture", options.capture && device_of(detector).is_cuda()},
      {"callers", options.callers},
      {"start", time_start(detector, loading)},
      {"batches", Json::array()},
  };
  for (const int64_t batch : options.batch_sizes) {
    if (options.capture) {
      detector.capture({&batch, 1});
    }
    document["batches"].push_back(bench_batch(detector, model, options, batch));
  }
  print_line(document);
  return ExitCode::kGood;
}
