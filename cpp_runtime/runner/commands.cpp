#include "commands.h"

#include <lensbox/annotate.h>
#include <lensbox/error.h>
#include <lensbox/image_io.h>
#include <lensbox/torch/artifact.h>
#include <lensbox/torch/boxes_json.h>
#include <lensbox/torch/detect_files.h>
#include <lensbox/torch/device.h>
#include <lensbox/torch/self_test.h>
#include <lensbox/torch/strict_json.h>
#include <torch/cuda.h>
#include <torch/version.h>

#include <fstream>
#include <iostream>
#include <iterator>
#include <variant>

#include "annotation_paths.h"

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr int kMaxDepth = 16;  // boxes need 6

lensbox::Trust trust(const ModelOptions& model) {
  return model.trusted ? lensbox::Trust::kTrustCode : lensbox::Trust::kCheckCode;
}

lensbox::Artifact load(const ModelOptions& model) {
  return lensbox::Artifact::load(model.artifact, lensbox::parse_device(model.device), model.op_library,
                                 trust(model));
}

Json read_json(const std::string& file, const std::string& argument) {
  std::ifstream stream;
  if (file != "-") {
    stream.open(file);
    if (!stream || fs::is_directory(file))
      throw lensbox::InputError(argument + ": cannot read the file " + file);
  }
  std::istream& input = file == "-" ? std::cin : stream;
  const std::string text{std::istreambuf_iterator<char>(input), std::istreambuf_iterator<char>()};
  try {
    return lensbox::parse_strict_json(text, kMaxDepth);
  } catch (const lensbox::JsonError& error) {
    throw lensbox::InputError(argument + ": " + file + " is not JSON that can be used: " + error.what());
  }
}

// The photograph is read again, at full size and in color: the detector needs less of it.
void draw(const fs::path& photo, lensbox::Orientation orientation,
          const std::vector<lensbox::Detection>& detections, const lensbox::Metadata& metadata,
          const fs::path& output) {
  const lensbox::Image image = lensbox::read_image(photo, orientation);
  std::error_code ignored;  // write_png reports it
  fs::create_directories(output.parent_path(), ignored);
  lensbox::write_png(output, lensbox::annotate(image, detections, metadata.classes, metadata.extras));
}

}  // namespace

Outcome run_info(const ModelOptions& model) {
  Json document = lensbox::read_metadata(model.artifact, trust(model)).document;
  document["runner"] = {
      {"version", LENSBOX_RUNTIME_VERSION},
      {"libtorch", TORCH_VERSION},
      {"device", lensbox::parse_device(model.device).str()},
      {"cuda_available", torch::cuda::is_available()},
  };
  return {document};
}

Outcome run_selftest(const ModelOptions& model) {
  const lensbox::SelfTestReport report = lensbox::run_self_test(load(model));
  Json document = {
      {"passed", report.passed()},
      {"failures", report.failures},
      {"max_box_error", report.max_box_error},
      {"max_score_error", report.max_score_error},
      {"loss_error", report.loss_error},
  };
  return {document, report.passed() ? ExitCode::kGood : ExitCode::kArtifact};
}

Outcome run_detect(const ModelOptions& model, const DetectOptions& options) {
  std::vector<fs::path> annotated;
  if (!options.annotate.empty()) annotated = annotation_paths(options.annotate, options.images);

  lensbox::Artifact artifact = load(model);
  const lensbox::Metadata& metadata = artifact.metadata();
  lensbox::DetectFilesOptions how{
      .reading = metadata.reading,
      .score_threshold = options.score_threshold.value_or(metadata.score_threshold),
      .iou_threshold = options.iou_threshold.value_or(metadata.iou_threshold),
      .batch_size = options.batch,
      .decode_threads = options.decode_threads,
  };
  lensbox::Orientation& orientation = how.reading.reading.orientation;
  orientation = options.orientation.value_or(orientation);
  if (options.capture) {
    artifact.capture({static_cast<int64_t>(options.batch)}, how.score_threshold, how.iou_threshold);
  }

  Outcome outcome;
  const auto report = [&](size_t i, const std::variant<lensbox::FileDetections, lensbox::InputError>& found) {
    Json entry = {{"file", options.images[i].string()}};
    try {
      if (const auto* const error = std::get_if<lensbox::InputError>(&found)) throw *error;
      const auto& file = std::get<lensbox::FileDetections>(found);
      entry["width"] = file.width;
      entry["height"] = file.height;
      entry["detections"] = lensbox::to_json(file.detections, metadata.classes, metadata.extras);
      if (!annotated.empty()) {
        draw(options.images[i], orientation, file.detections, metadata, annotated[i]);
      }
    } catch (const lensbox::InputError& error) {
      std::cerr << "lensbox_runner: " << error.what() << '\n';
      entry["error"] = error.what();
      outcome.code = ExitCode::kInput;
    }
    outcome.document["images"].push_back(std::move(entry));
  };
  lensbox::detect_files(artifact, options.images, how, report);
  return outcome;
}

Outcome run_loss(const ModelOptions& model, const LossOptions& options) {
  if (options.predictions == "-" && options.targets == "-") {
    throw UsageError("only one of --predictions and --targets can be read from stdin");
  }
  const at::Tensor predictions =
      lensbox::parse_boxes(read_json(options.predictions, "predictions"), "predictions");
  const at::Tensor targets = lensbox::parse_boxes(read_json(options.targets, "targets"), "targets");
  const lensbox::Loss loss = load(model).loss(predictions, targets);
  return {{{"loss", loss.value}, {"slots", loss.slots}}};
}
