#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/version.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "bench_timing.h"
#include "bench_ways.h"
#include "commands.h"
#include "json_output.h"
#include "model.h"
#include "peak_memory.h"
#include "process_start.h"
#include "statistics.h"

namespace {

using Json = nlohmann::ordered_json;

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

Json bench_batch(const LoadedDetector& detector, const ModelOptions& model, const BenchOptions& options,
                 int64_t batch) {
  const c10::Device device = detector.artifact.device();
  const std::vector<BenchWay> ways = bench_ways(detector, model, batch);
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

// From the start of the process to the first boxes, in milliseconds.
Json time_start(const LoadedDetector& detector, double loading) {
  const lensbox::LoadTimes& load = detector.artifact.load_times();
  const lensbox::SelfTest& test = detector.artifact.metadata().self_test;
  const at::Tensor image =
      at::tensor(at::ArrayRef<uint8_t>(test.pixels), at::kByte).reshape(test.image_shape);
  const auto begin = std::chrono::steady_clock::now();
  detector.artifact.detect(image, detector.score_threshold, detector.iou_threshold);
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
  LoadedDetector detector = load_detector(model, {});
  const double loading =
      std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
  Json document = {
      {"device", detector.artifact.device().str()},
      {"threads", at::get_num_threads()},
      {"libtorch", TORCH_VERSION},
      {"capture", options.capture && detector.artifact.device().is_cuda()},
      {"callers", options.callers},
      {"start", time_start(detector, loading)},
      {"batches", Json::array()},
  };
  for (const int64_t batch : options.batch_sizes) {
    if (options.capture) {
      detector.artifact.capture({batch}, detector.score_threshold, detector.iou_threshold);
    }
    document["batches"].push_back(bench_batch(detector, model, options, batch));
  }
  print_line(document);
  return ExitCode::kGood;
}
