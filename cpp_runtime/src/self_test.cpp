#include <ATen/ATen.h>
#include <lensbox/boxes_json.h>
#include <lensbox/error.h>
#include <lensbox/self_test.h>

#include <algorithm>
#include <cmath>
#include <sstream>

namespace lensbox {
namespace {

using Json = nlohmann::ordered_json;

at::Tensor image_tensor(const Json& image) {
  const auto shape = image.at("shape").get<std::vector<int64_t>>();
  auto pixels = image.at("pixels").get<std::vector<uint8_t>>();
  if (c10::multiply_integers(shape) != static_cast<int64_t>(pixels.size())) {
    throw ArtifactError("the artifact's self-test is damaged: its image has " +
                        std::to_string(pixels.size()) + " values and the shape " + image.at("shape").dump());
  }
  return at::from_blob(pixels.data(), shape, at::kByte).clone();
}

// A NaN is greater than everything, and stays.
double greater_error(double greatest, double error) {
  return std::isnan(greatest) || error <= greatest ? greatest : error;
}

void check(const char* what, const char* unit, double error, double tolerance,
           std::vector<std::string>& failures) {
  if (error <= tolerance) return;  // false for NaN
  std::ostringstream message;
  message << what << " differ by up to " << error << unit << ", at most " << tolerance << unit
          << " is allowed";
  failures.push_back(message.str());
}

void compare_detections(const Json& expected, const std::vector<Detection>& actual, SelfTestReport& report) {
  const auto boxes = expected.at("boxes").get<std::vector<std::array<double, 4>>>();
  const auto scores = expected.at("scores").get<std::vector<double>>();
  if (boxes.size() != scores.size()) {
    throw ArtifactError("the artifact's self-test is damaged: it expects " + std::to_string(boxes.size()) +
                        " boxes, but " + std::to_string(scores.size()) + " scores");
  }
  if (actual.size() != scores.size()) {
    report.failures.push_back("expected " + std::to_string(scores.size()) + " detections, got " +
                              std::to_string(actual.size()));
  }
  for (size_t i = 0; i < std::min(actual.size(), scores.size()); ++i) {
    report.max_score_error = greater_error(report.max_score_error, std::abs(actual[i].score - scores[i]));
    for (size_t k = 0; k < 4; ++k) {
      report.max_box_error = greater_error(report.max_box_error, std::abs(actual[i].box[k] - boxes[i][k]));
    }
  }
}

double loss_of(const Artifact& artifact, const Json& loss) {
  const at::Tensor predictions = parse_boxes(loss.at("predictions"), "predictions").to(at::kFloat);
  const at::Tensor targets = parse_boxes(loss.at("targets"), "targets").to(at::kFloat);
  return artifact.loss(predictions, targets).value;
}

SelfTestReport run(const Artifact& artifact, const Json& test) {
  SelfTestReport report{.failures = {}, .max_box_error = 0, .max_score_error = 0, .loss_error = 0};
  const auto detections =
      artifact.detect(image_tensor(test.at("image")), test.at("score_threshold").get<double>(),
                      test.at("iou_threshold").get<double>());
  compare_detections(test.at("expected"), detections, report);
  const Json& loss = test.at("loss");
  report.loss_error = std::abs(loss_of(artifact, loss) - loss.at("expected").get<double>());

  const Json& tolerance = test.at("tolerance").at(artifact.device().is_cuda() ? "cuda" : "cpu");
  check("boxes", "px", report.max_box_error, tolerance.at("boxes").get<double>(), report.failures);
  check("scores", "", report.max_score_error, tolerance.at("scores").get<double>(), report.failures);
  check("losses", "", report.loss_error, tolerance.at("loss").get<double>(), report.failures);
  return report;
}

}  // namespace

SelfTestReport run_self_test(const Artifact& artifact) {
  try {
    return run(artifact, artifact.metadata().document.at("self_test"));
  } catch (const Json::exception& error) {
    throw ArtifactError(std::string("the artifact's self-test is damaged: ") + error.what());
  } catch (const InputError& error) {
    throw ArtifactError(std::string("the artifact's self-test is damaged: ") + error.what());
  }
}

}  // namespace lensbox
