#include "backends/onnx_backend.h"

#include <algorithm>
#include <exception>
#include <iterator>
#include <utility>

#include "backends/call.h"
#include "cpu/launchers.h"  // of the op library
#include "file/errors.h"

namespace lensbox {
namespace {

// Append the first `batch` rows of an output to numbers that begin like it.
template <class To>
void append(const OnnxOutput& output, int64_t batch, OutputNumbers& numbers) {
  std::vector<To> values;
  if (auto* const before = std::get_if<std::vector<To>>(&numbers.values)) values = std::move(*before);
  std::visit(
      [&](const auto& all) {
        const int64_t given = output.type.sizes.at(0);
        const auto count = given == 0 ? 0 : std::ssize(all) / given * batch;
        std::transform(all.begin(), all.begin() + count, std::back_inserter(values),
                       [](auto value) { return static_cast<To>(value); });
      },
      output.values);
  std::vector<int64_t> sizes = output.type.sizes;
  sizes.at(0) = batch + (numbers.sizes.empty() ? 0 : numbers.sizes[0]);
  numbers = {std::move(sizes), std::move(values)};
}

}  // namespace

OnnxBackend::OnnxBackend(std::filesystem::path artifact, const ArtifactFile& file, int threads)
    : artifact_(std::move(artifact)),
      methods_(file.metadata.methods),
      canvas_(file.metadata.reading.canvas),
      batch_(file.metadata.batch),
      outputs_(outputs_of(file.metadata)),
      threads_(threads),
      session_(open_onnx_session(artifact_, *file.bytes, outputs_, threads)) {}

template <class Function>
auto OnnxBackend::method(const std::string& name, Function function) const {
  if (std::ranges::find(methods_, name) == methods_.end()) {
    fail_artifact(artifact_, "has no method " + name);
  }
  const Call call;
  try {
    return function();
  } catch (const std::exception& error) {
    fail_artifact(artifact_, "method " + name + " failed:\n" + indented(error.what()));
  }
}

PendingBatch OnnxBackend::detect(const std::vector<Source>& sources, double score, double iou) const {
  std::vector<const DecodedPhoto*> photos;
  for (const Source& source : sources) {
    check_source(source.photo, photos.size());
    photos.push_back(&source.photo);
  }
  const FittedPhotos fitted = method("preprocess", [&] { return fit_photos(photos, canvas_, threads_); });
  FoundNumbers found = find(fitted.canvases.data(), std::ssize(photos), score, iou);
  restore(found, fitted.geometry);
  return [found = std::move(found)]() mutable { return std::move(found); };
}

Loss OnnxBackend::loss(std::span<const Box> predictions, std::span<const Box> targets) const {
  const double value =
      loss(predictions.data(), targets.data(), std::ssize(predictions), /*in_double=*/false, nullptr);
  return {value, std::ranges::count_if(targets, [](const Box& box) { return box[3] != 0; })};
}

double OnnxBackend::loss(const void* predictions, const void* targets, int64_t count, bool in_double,
                         void* gradient) const {
  return method("loss", [&] {
    const DType dtype = in_double ? DType::kFloat64 : DType::kFloat32;
    const MaskedProblem problem{packed_slots(predictions, dtype, count, 4),
                                packed_slots(targets, dtype, count, 4),
                                {},
                                /*is_weighted=*/false,
                                count,
                                /*eps=*/1e-7,
                                in_double};
    double in_float64 = 0, normalizer = 0;
    float in_float32 = 0;
    void* const value = in_double ? static_cast<void*>(&in_float64) : &in_float32;
    if (gradient == nullptr) {
      lensbox_cpu_masked_giou_loss_forward(problem, value, &normalizer);
    } else {
      lensbox_cpu_masked_giou_loss_and_grad(problem, value, &normalizer,
                                            packed_slots(gradient, dtype, count, 4));
    }
    return in_double ? in_float64 : in_float32;
  });
}

DeviceReader OnnxBackend::device_reader(const Reading& /*reading*/, Decode decode,
                                        size_t /*batch_size*/) const {
  refuse_gpu_decoder(decode, "the detector is on the device cpu");
  return nullptr;
}

FoundNumbers OnnxBackend::find(const uint8_t* canvases, int64_t count, double score, double iou) const {
  const int64_t step = batch_ == 0 ? count : batch_;
  const int64_t size = canvas_.channels * canvas_.height * canvas_.width;
  std::vector<uint8_t> filled;
  FoundNumbers found;
  found.extras.resize(outputs_.extras.size());
  for (int64_t first = 0; first < count; first += step) {
    const int64_t given = std::min(step, count - first);
    const uint8_t* batch = canvases + first * size;
    if (given < step) {
      filled.assign(batch, batch + given * size);
      filled.resize(step * size);
      batch = filled.data();
    }
    const auto outputs = method("detect", [&] {
      return session_(batch, {step, canvas_.channels, canvas_.height, canvas_.width},
                      {static_cast<float>(score), static_cast<float>(iou)});
    });
    std::vector<OutputType> types;
    std::ranges::transform(outputs, std::back_inserter(types), &OnnxOutput::type);
    check_outputs(artifact_, outputs_, types, step);
    append<float>(outputs[0], given, found.boxes);
    append<float>(outputs[1], given, found.scores);
    append<int64_t>(outputs[2], given, found.counts);
    if (outputs_.classes > 0) append<int64_t>(outputs[3], given, found.labels);
    for (size_t i = 0; i < found.extras.size(); ++i) {
      const OnnxOutput& extra = outputs[outputs.size() - found.extras.size() + i];
      extra.type.type == "Long" ? append<int64_t>(extra, given, found.extras[i])
                                : append<float>(extra, given, found.extras[i]);
    }
  }
  return found;
}

void OnnxBackend::restore(FoundNumbers& found, const std::vector<Geometry>& geometry) const {
  const auto restore_all = [&](const char* name, OutputNumbers& numbers, int64_t width, auto restore_one) {
    auto& values = std::get<std::vector<float>>(numbers.values);
    const size_t of_image = values.size() / geometry.size();
    method(name, [&] {
      for (size_t i = 0; i < values.size(); i += width) {
        restore_one(geometry[i / of_image], &values[i]);
      }
      return 0;
    });
  };
  restore_all("restore", found.boxes, 4, [](const Geometry& g, float* box) { g.restore_box(box); });
  for (size_t i = 0; i < found.extras.size(); ++i) {
    if (outputs_.extras[i].kind != ExtraKind::kPoints) continue;
    restore_all("restore_points", found.extras[i], 2,
                [](const Geometry& g, float* point) { g.restore_point(point); });
  }
}

std::shared_ptr<Backend> load_onnx(const std::filesystem::path& artifact, const ArtifactFile& file,
                                   int threads) {
  note_threads(threads);
  const Call call;  // onnxruntime starts threads
  return std::make_shared<OnnxBackend>(artifact, file, threads);
}

}  // namespace lensbox
