#include <algorithm>
#include <cmath>
#include <sstream>
#include <utility>
#include <variant>

#include "backends/call.h"
#include "detect/steps.h"
#include "detection_sets.h"  // of the op library
#include "file/errors.h"
#include "images/decoders.h"

namespace lensbox {
namespace {

// As in runtime/file/self_test.py.
constexpr double kIouLimitOnCpu = 0.01;
constexpr double kIouLimitElsewhere = 0.02;
constexpr size_t kUnmatchedPart = 20;  // one of 20 expected detections may be unmatched by rounding

// extras: the number of further outputs.
DetectionSet set_of(const std::vector<Detection>& detections, size_t extras) {
  DetectionSet set{{}, {}, {}, std::vector<std::vector<double>>(extras)};
  for (const Detection& detection : detections) {
    set.boxes.insert(set.boxes.end(), detection.box.begin(), detection.box.end());
    set.scores.push_back(detection.score);
    set.labels.push_back(static_cast<double>(detection.label));
    for (size_t e = 0; e < detection.extras.size(); ++e) {
      std::visit(
          [&](const auto& numbers) {
            set.extras[e].insert(set.extras[e].end(), numbers.begin(), numbers.end());
          },
          detection.extras[e]);
    }
  }
  return set;
}

// Return the picture of the self-test, which is stored plane by plane.
DecodedPhoto picture_of(const SelfTest& test) {
  const auto [channels, height, width] = test.image_shape;
  Pixels pixels = new_pixels(width, height, channels);
  for (int64_t i = 0; i < width * height; ++i) {
    for (int64_t c = 0; c < channels; ++c) {
      pixels.row(i / width)[i % width * channels + c] = test.pixels[c * width * height + i];
    }
  }
  return whole_photo(std::move(pixels));
}

// Run the self-test: detection in a small image and the loss of a few boxes, compared by the rule of
// docs/artifact.md, "The self-test".
SelfTestReport run_self_test(const Detector& detector) {
  const Metadata& metadata = detector.metadata();
  const SelfTest& test = metadata.self_test;
  const bool on_cpu = detector.parts().backend->is_on_cpu();
  const Tolerance& limits = on_cpu ? test.cpu : test.cuda;
  const auto found =
      detect_sources(detector.parts(), {{picture_of(test)}}, {test.score_threshold, test.iou_threshold})
          .front();
  DetectionSet expected = set_of(test.detections, 0);
  expected.extras = test.extras;
  const SetDifference difference(expected, set_of(found, test.extras.size()),
                                 {test.score_threshold, test.iou_threshold, limits.boxes, 0, limits.scores,
                                  on_cpu ? kIouLimitOnCpu : kIouLimitElsewhere, limits.extras});
  SelfTestReport report{.max_box_error = difference.boxes.empty() ? 0 : std::ranges::max(difference.boxes),
                        .max_score_error = difference.scores,
                        .unmatched_by_rounding = difference.by_rounding};
  const auto fail = [&](auto... parts) {
    std::ostringstream message;
    (message << ... << parts);
    report.failures.push_back(message.str());
  };
  const size_t count = test.detections.size();
  if (!difference.unexplained.empty()) {
    fail("expected ", count, " detections, got ", found.size(), ", moved by up to ", difference.moved,
         " px and ", difference.score_moved, " of the score");
  }
  for (const std::string& sentence : difference.unexplained) {
    fail("the picture of the self-test: ", sentence);
  }
  if (report.unmatched_by_rounding > count / kUnmatchedPart) {
    fail(report.unmatched_by_rounding, " detections are unmatched by rounding, at most ",
         count / kUnmatchedPart, " of ", count, " may be");
  }
  if (!report.passed()) {
    report.max_box_error = std::max(report.max_box_error, difference.moved);
    report.max_score_error = std::max(report.max_score_error, difference.score_moved);
  }
  const double loss =
      has_loss(metadata) ? detector.loss(test.loss_predictions, test.loss_targets).value : test.loss;
  report.loss_error = std::abs(loss - test.loss);
  if (!(report.loss_error <= limits.loss)) {  // true for NaN
    fail("losses differ by ", report.loss_error, ", at most ", limits.loss, " is allowed");
  }
  return report;
}

}  // namespace

SelfTestReport Detector::self_test() const {
  return guarded_call([&] { return run_self_test(*this); });
}

}  // namespace lensbox
