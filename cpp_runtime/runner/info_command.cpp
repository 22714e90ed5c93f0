#include <lensbox/version.h>
#include <torch/cuda.h>
#include <torch/version.h>

#include "commands.h"
#include "model/machine.h"
#include "streams.h"

using Json = nlohmann::ordered_json;

void run_info(const ModelOptions& model) {
  const lensbox::Metadata metadata = lensbox::read_metadata(model.artifact, model.load.public_key);
  Json document = Json::parse(metadata.json);
  document["runner"] = {
      {"version", LENSBOX_VERSION},
      {"libtorch", TORCH_VERSION},
      {"device", lensbox::parse_device(model.load.device).str()},
      {"cuda_available", torch::cuda::is_available()},
  };
  if (metadata.file_kind == lensbox::FileKind::kOnnx) {
    document["runner"]["onnxruntime"] = lensbox::onnxruntime_version().value_or("");
  }
  print_line(document);
}

Outcome run_selftest(const ModelOptions& model) {
  const lensbox::SelfTestReport report = lensbox::Detector::load(model.artifact, model.load).self_test();
  print_line({
      {"passed", report.passed()},
      {"failures", report.failures},
      {"max_box_error", report.max_box_error},
      {"max_score_error", report.max_score_error},
      {"loss_error", report.loss_error},
      {"unmatched_by_rounding", report.unmatched_by_rounding},
  });
  return report.passed() ? Outcome() : lensbox::ErrorCode::kArtifact;
}
