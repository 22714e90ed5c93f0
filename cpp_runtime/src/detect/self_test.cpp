#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <sstream>
#include <variant>

#include "detect/steps.h"
#include "model/methods.h"

namespace lensbox {
namespace {

constexpr double kIouLimitOnCpu = 0.01;
constexpr double kIouLimitElsewhere = 0.02;
constexpr size_t kExchangedPart = 20;  // rounding may add or remove one detection for each 20 expected ones

// The detections of one side, and whether each has a partner on the other side.
struct Side {
  const std::vector<Detection>& detections;
  std::vector<bool> paired = std::vector<bool>(detections.size());
};

// The tensor does not own the pixels: the self-test outlives it.
at::Tensor image_tensor(const SelfTest& test) {
  return at::from_blob(const_cast<uint8_t*>(test.pixels.data()), test.image_shape, at::kByte);
}

// Return the larger error; NaN counts as the largest.
double greater_error(double greatest, double error) {
  return std::isnan(greatest) || error <= greatest ? greatest : error;
}

double score_error(const Detection& one, const Detection& other) {
  return std::abs(static_cast<double>(one.score) - other.score);
}

// Return the largest difference of a coordinate.
double box_error(const Box& one, const Box& other) {
  double error = 0;
  for (size_t k = 0; k < 4; ++k) {
    error = greater_error(error, std::abs(static_cast<double>(one[k]) - other[k]));
  }
  return error;
}

double area(const Box& box) {
  return (static_cast<double>(box[2]) - box[0]) * (static_cast<double>(box[3]) - box[1]);
}

double iou(const Box& one, const Box& other) {
  const double width = std::min<double>(one[2], other[2]) - std::max<double>(one[0], other[0]);
  const double height = std::min<double>(one[3], other[3]) - std::max<double>(one[1], other[1]);
  const double shared = std::max(width, 0.0) * std::max(height, 0.0);
  return shared > 0 ? shared / (area(one) + area(other) - shared) : 0;
}

// expected: the numbers of all expected detections for each extra, row by row; index: the expected detection.
bool extras_match(const std::vector<std::vector<double>>& expected, size_t index, const Detection& actual,
                  const std::vector<double>& limits) {
  for (size_t e = 0; e < limits.size(); ++e) {
    const auto matches = [&](const auto& numbers) {
      const double* const wanted = expected[e].data() + index * numbers.size();
      return std::ranges::equal(numbers, std::span(wanted, numbers.size()), [&](auto number, double value) {
        return std::abs(static_cast<double>(number) - value) <= limits[e];  // false for NaN
      });
    };
    if (!std::visit(matches, actual.extras.at(e))) return false;
  }
  return true;
}

// Rule 1: of all pairs that match, the closest become partners first. Measures the partners for the report.
void pair_up(const SelfTest& test, const Tolerance& limits, Side& expected, Side& actual,
             SelfTestReport& report) {
  struct Pair {
    double distance;
    size_t expected;
    size_t actual;
  };
  std::vector<Pair> pairs;
  for (size_t i = 0; i < expected.detections.size(); ++i) {
    for (size_t j = 0; j < actual.detections.size(); ++j) {
      const Detection& wanted = expected.detections[i];
      const Detection& found = actual.detections[j];
      const double box = box_error(wanted.box, found.box);
      const double score = score_error(wanted, found);
      if (wanted.label == found.label && box <= limits.boxes && score <= limits.scores &&
          extras_match(test.extras, i, found, limits.extras)) {
        pairs.push_back({box + score, i, j});
      }
    }
  }
  std::ranges::stable_sort(pairs, {}, &Pair::distance);
  for (const Pair& pair : pairs) {
    if (expected.paired[pair.expected] || actual.paired[pair.actual]) continue;
    expected.paired[pair.expected] = actual.paired[pair.actual] = true;
    const Detection& wanted = expected.detections[pair.expected];
    const Detection& found = actual.detections[pair.actual];
    report.max_box_error = greater_error(report.max_box_error, box_error(wanted.box, found.box));
    report.max_score_error = greater_error(report.max_score_error, score_error(wanted, found));
  }
}

// Rule 2: return whether rounding explains that `detection` has no partner on the other side.
bool is_explained(const SelfTest& test, const Tolerance& limits, double iou_limit, const Detection& detection,
                  const Side& other) {
  if (!std::ranges::all_of(detection.box, [](float edge) { return std::isfinite(edge); })) return false;
  if (detection.score <= test.score_threshold + limits.scores) return true;
  const auto [x1, y1, x2, y2] = detection.box;
  double slack = iou_limit;
  for (const double side : {static_cast<double>(x2) - x1, static_cast<double>(y2) - y1}) {
    if (limits.boxes > 0) slack += limits.boxes / std::max(side, limits.boxes);
  }
  for (size_t i = 0; i < other.detections.size(); ++i) {
    const Detection& rival = other.detections[i];
    const double overlap = iou(detection.box, rival.box);
    if (rival.score >= detection.score - limits.scores && overlap > test.iou_threshold - slack &&
        // A rival that both sides have must overlap by about the threshold, or both would drop the detection.
        (!other.paired[i] || overlap <= test.iou_threshold + slack)) {
      return true;
    }
  }
  return false;
}

// Count and report the detections of one side that have no partner on the other.
void report_unpaired(const SelfTest& test, const Tolerance& limits, double iou_limit, const Side& side,
                     const Side& other, const char* name, SelfTestReport& report) {
  for (size_t i = 0; i < side.detections.size(); ++i) {
    const Detection& detection = side.detections[i];
    if (side.paired[i]) continue;
    if (is_explained(test, limits, iou_limit, detection, other)) {
      ++report.exchanged;
      continue;
    }
    std::ostringstream message;
    const auto& [x1, y1, x2, y2] = detection.box;
    message << name << " detection " << i << " (score " << detection.score << ", label " << detection.label
            << ", box " << x1 << ", " << y1 << ", " << x2 << ", " << y2 << ") has no counterpart";
    report.failures.push_back(message.str());
  }
}

// Measure how far an expected detection without a partner moved: to the detection of its label with the
// largest overlap.
void measure_moved(const Side& expected, const Side& actual, SelfTestReport& report) {
  for (size_t i = 0; i < expected.detections.size(); ++i) {
    const Detection& wanted = expected.detections[i];
    if (expected.paired[i]) continue;
    const Detection* moved = nullptr;
    double most = 0.5;
    for (const Detection& found : actual.detections) {
      const double overlap = wanted.label == found.label ? iou(wanted.box, found.box) : 0;
      if (overlap <= most) continue;
      most = overlap;
      moved = &found;
    }
    if (moved == nullptr) continue;
    report.max_box_error = greater_error(report.max_box_error, box_error(wanted.box, moved->box));
    report.max_score_error = greater_error(report.max_score_error, score_error(wanted, *moved));
  }
}

}  // namespace

SelfTestReport compare_with_stored(const Metadata& metadata, const std::vector<Detection>& detections,
                                   double loss, bool on_cpu) {
  const SelfTest& test = metadata.self_test;
  const Tolerance& limits = on_cpu ? test.cpu : test.cuda;
  const double iou_limit = on_cpu ? kIouLimitOnCpu : kIouLimitElsewhere;
  SelfTestReport report;
  Side expected{test.detections};
  Side actual{detections};
  pair_up(test, limits, expected, actual, report);
  report_unpaired(test, limits, iou_limit, expected, actual, "expected", report);
  report_unpaired(test, limits, iou_limit, actual, expected, "unexpected", report);
  const size_t count = test.detections.size();
  if (report.exchanged > count / kExchangedPart) {
    report.failures.push_back(
        std::to_string(report.exchanged) + " detections came or went by rounding, at most " +
        std::to_string(count / kExchangedPart) + " of " + std::to_string(count) + " may");
  }
  if (!report.passed()) measure_moved(expected, actual, report);
  report.loss_error = std::abs(loss - test.loss);
  if (!(report.loss_error <= limits.loss)) {  // true for NaN
    std::ostringstream message;
    message << "losses differ by " << report.loss_error << ", at most " << limits.loss << " is allowed";
    report.failures.push_back(message.str());
  }
  return report;
}

SelfTestReport run_self_test(const Detector& detector) {
  const Metadata& metadata = detector.metadata();
  const SelfTest& test = metadata.self_test;
  const auto detections = detect_photos(detector, {Photo::of(image_tensor(test))},
                                        {.score = test.score_threshold, .iou = test.iou_threshold})
                              .front();
  const double loss =
      has_loss(metadata) ? detector.loss(test.loss_predictions, test.loss_targets).value : test.loss;
  return compare_with_stored(metadata, detections, loss, device_of(detector).is_cpu());
}

}  // namespace lensbox
