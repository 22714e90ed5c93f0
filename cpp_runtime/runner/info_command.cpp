#include <lensbox/version.h>

#include "backends/backend.h"
#include "commands.h"
#include "streams.h"

using Json = nlohmann::ordered_json;

void run_info(const ModelOptions& model) {
  const lensbox::Metadata metadata = lensbox::read_metadata(model.artifact, model.load.public_key);
  Json document = Json::parse(metadata.json);
  document["runner"] = {
      {"version", LENSBOX_VERSION},
      {"libtorch", nullptr},
      {"device", lensbox::checked_device(model.load.device)},
      {"cuda_available", lensbox::is_cuda_available()},
  };
  if (const auto libtorch = lensbox::libtorch_version()) document["runner"]["libtorch"] = *libtorch;
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
