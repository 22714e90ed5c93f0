#include "detect/self_test.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <sstream>
#include <variant>

#include "model/detect_only_methods.h"

namespace lensbox {
namespace {

// The tensor does not own the pixels: the self-test outlives it.
at::Tensor image_tensor(const SelfTest& test) {
  return at::from_blob(const_cast<uint8_t*>(test.pixels.data()), test.image_shape, at::kByte);
}

// A NaN is greater than everything, and stays.
double greater_error(double greatest, double error) {
  return std::isnan(greatest) || error <= greatest ? greatest : error;
}

double difference(double actual, double expected) {
  return std::abs(actual - expected);
}

void check(const std::string& what, const char* unit, double error, double tolerance,
           std::vector<std::string>& failures) {
  if (error <= tolerance) return;  // false for NaN
  std::ostringstream message;
  message << what << " differ by up to " << error << unit << ", at most " << tolerance << unit
          << " is allowed";
  failures.push_back(message.str());
}

void compare_detections(const std::vector<Detection>& expected, const std::vector<Detection>& actual,
                        SelfTestReport& report) {
  if (actual.size() != expected.size()) {
    report.failures.push_back("expected " + std::to_string(expected.size()) + " detections, got " +
                              std::to_string(actual.size()));
  }
  for (size_t i = 0; i < std::min(actual.size(), expected.size()); ++i) {
    report.max_score_error =
        greater_error(report.max_score_error, difference(actual[i].score, expected[i].score));
    for (size_t k = 0; k < 4; ++k) {
      report.max_box_error =
          greater_error(report.max_box_error, difference(actual[i].box[k], expected[i].box[k]));
    }
  }
}

std::vector<int64_t> labels_of(const std::vector<Detection>& detections, size_t count) {
  std::vector<int64_t> labels;
  for (const Detection& detection : std::span(detections).first(count)) {
    labels.push_back(detection.label);
  }
  return labels;
}

void compare_labels(const std::vector<Detection>& expected, const std::vector<Detection>& actual,
                    std::vector<std::string>& failures) {
  const size_t common = std::min(actual.size(), expected.size());
  const std::vector<int64_t> wanted = labels_of(expected, common);
  const std::vector<int64_t> got = labels_of(actual, common);
  if (got == wanted) return;
  failures.push_back(c10::str("labels must be ", at::IntArrayRef(wanted), ", got ", at::IntArrayRef(got)));
}

// Return the largest difference in the extra of this index; expected: the numbers of all detections, row by
// row.
double extra_error(const std::vector<double>& expected, const std::vector<Detection>& actual, size_t index) {
  double error = 0;
  auto next = expected.begin();
  for (const Detection& detection : actual) {
    std::visit(
        [&](const auto& numbers) {
          for (size_t k = 0; k < numbers.size() && next != expected.end(); ++k) {
            error = greater_error(error, difference(static_cast<double>(numbers[k]), *next++));
          }
        },
        detection.extras.at(index));
  }
  return error;
}

}  // namespace

SelfTestReport run_self_test(const Detector& detector) {
  const Metadata& metadata = detector.metadata();
  const SelfTest& test = metadata.self_test;
  SelfTestReport report{.failures = {}, .max_box_error = 0, .max_score_error = 0, .loss_error = 0};
  const auto detections = detect_photos(detector, {Photo::of(image_tensor(test))},
                                        {.score = test.score_threshold, .iou = test.iou_threshold})
                              .front();
  compare_detections(test.detections, detections, report);
  if (has_loss(metadata)) {
    report.loss_error = std::abs(detector.loss(test.loss_predictions, test.loss_targets).value - test.loss);
  }

  const Tolerance& tolerance = device_of(detector).is_cuda() ? test.cuda : test.cpu;
  check("boxes", "px", report.max_box_error, tolerance.boxes, report.failures);
  check("scores", "", report.max_score_error, tolerance.scores, report.failures);
  check("losses", "", report.loss_error, tolerance.loss, report.failures);
  compare_labels(test.detections, detections, report.failures);
  for (size_t i = 0; i < metadata.extras.size(); ++i) {
    check(metadata.extras[i].name, metadata.extras[i].kind == ExtraKind::kPoints ? "px" : "",
          extra_error(test.extras[i], detections, i), tolerance.extras[i], report.failures);
  }
  return report;
}

}  // namespace lensbox
