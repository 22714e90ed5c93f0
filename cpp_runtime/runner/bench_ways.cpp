#include "bench_ways.h"

#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <c10/core/InferenceMode.h>
#include <lensbox/error.h>
#include <torch/csrc/inductor/aoti_package/model_package_loader.h>
#include <torch/csrc/jit/serialization/import.h>

#include <fstream>
#include <iterator>
#include <memory>

#include "onnx_session.h"

namespace {

constexpr size_t kMostCallers = 8;  // further ones wait

// uint8 [c, h, w], as large as the canvas: the self-test's picture, repeated or cut off.
at::Tensor picture(const lensbox::Metadata& metadata, const std::string& artifact) {
  if (!metadata.reading.canvas) {
    throw lensbox::ArtifactError("artifact " + artifact +
                                 ": bench needs to know the canvas, which artifacts of format 1 do not tell");
  }
  const lensbox::Canvas& canvas = *metadata.reading.canvas;
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

// For the bare module, which would otherwise compute with TF32 where torch's default does. The artifact's own
// calls set the same.
void use_precision_of(const lensbox::Artifact& artifact) {
  if (!artifact.device().is_cuda()) return;
  const auto& precision = artifact.metadata().precision;
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

// The method detect without any of Lensbox's code around it. The file is the one that was checked when the
// artifact was loaded.
std::function<void()> bare_detect(const lensbox::Artifact& artifact, const std::string& path,
                                  const at::Tensor& canvases, double score, double iou) {
  const c10::Device device = artifact.device();
  if (artifact.metadata().file_kind == lensbox::FileKind::kOnnx) {
    const auto session = lensbox::open_onnx_session(path, read_bytes(path), at::get_num_threads());
    return [session, canvases, score, iou] { session->run(canvases, score, iou); };
  }
  if (artifact.metadata().file_kind == lensbox::FileKind::kPackage) {
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

}  // namespace

std::vector<BenchWay> bench_ways(const LoadedDetector& detector, const ModelOptions& model, int64_t batch) {
  const lensbox::Artifact& artifact = detector.artifact;
  const at::Tensor image = picture(artifact.metadata(), model.artifact.string());
  const double score = detector.score_threshold;
  const double iou = detector.iou_threshold;
  use_precision_of(artifact);

  std::vector<lensbox::Photo> photos;
  for (int64_t i = 0; i < batch; ++i) {
    photos.push_back(lensbox::Photo::of(image.clone()));
  }
  const at::Tensor canvases = image.unsqueeze(0).repeat({batch, 1, 1, 1}).to(artifact.device());
  return {
      {"whole", [&artifact, photos, score, iou] { artifact.detect(photos, score, iou); }},
      {"detect", [&artifact, canvases, score, iou] { artifact.detect_canvases(canvases, score, iou); }},
      {"module", bare_detect(artifact, model.artifact.string(), canvases, score, iou)},
  };
}
