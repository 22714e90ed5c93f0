// The comparison of detections as sets, for self-tests and exports: docs/artifact.md, "The self-test", has
// the rule. The op `lensbox_runtime::compare` and the C++ runtime share this code.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <sstream>
#include <string>
#include <vector>

namespace lensbox {

// The detections of one side. extras: for each further output, the numbers of all detections, row by row.
struct DetectionSet {
  std::vector<double> boxes;  // 4 for each detection
  std::vector<double> scores, labels;
  std::vector<std::vector<double>> extras;
  bool is_full = false;  // whether all slots of the detector are used
  std::vector<bool> paired = {};

  size_t count() const { return scores.size(); }
  const double* box(size_t i) const { return &boxes[4 * i]; }
  size_t size(size_t extra) const { return count() == 0 ? 0 : extras[extra].size() / count(); }

  // Return the lowest score that the detector gives: if all slots are used, that of the last one.
  double least_score(double threshold) const {
    return is_full && count() > 0 ? *std::min_element(scores.begin(), scores.end()) : threshold;
  }
};

// The largest differences between partners. relative: part of a coordinate, added to `boxes`. extras: one
// limit for each further output.
struct SetLimits {
  double score_threshold, iou_threshold;  // of the detector
  double boxes, relative, scores, iou;
  std::vector<double> extras;
};

// The differences of two sets.
class SetDifference {
 public:
  // Compare the detections of two runtimes in a picture. Both have an extra for each of limits.extras.
  SetDifference(DetectionSet expected, DetectionSet actual, const SetLimits& limits) : limits_(limits) {
    expected.paired.resize(expected.count());
    actual.paired.resize(actual.count());
    pair_up(expected, actual);
    measure_moved(expected, actual);
    count_unpaired(expected, actual);
    count_unpaired(actual, expected);
  }

  std::vector<double> boxes;  // the largest difference of a coordinate, for each pair of partners
  double scores = 0;          // the largest difference of all pairs
  // The number of detections without a partner, of both sides, that rounding explains and does not explain.
  size_t by_rounding = 0, unexplained_count = 0;
  std::vector<std::string> unexplained;  // a sentence for each side with unexplained detections
  // The largest differences between an expected detection without a partner and the detection of its label
  // that overlaps it most, by an IoU above 0.5.
  double moved = 0, score_moved = 0;

 private:
  static double apart(const double* one, const double* other) {
    double largest = 0;
    for (int k = 0; k < 4; ++k)
      largest = std::max(largest, std::abs(one[k] - other[k]));
    return largest;
  }

  static double iou(const double* a, const double* b) {
    const auto area = [](const double* box) { return (box[2] - box[0]) * (box[3] - box[1]); };
    const double width = std::min(a[2], b[2]) - std::max(a[0], b[0]);
    const double height = std::min(a[3], b[3]) - std::max(a[1], b[1]);
    const double shared = std::max(width, 0.0) * std::max(height, 0.0);
    return shared > 0 ? shared / (area(a) + area(b) - shared) : 0;
  }

  // All comparisons are false for NaN, but NaN equals NaN in extras.
  bool is_match(const DetectionSet& expected, size_t i, const DetectionSet& actual, size_t j) const {
    const double *one = expected.box(i), *other = actual.box(j);
    for (int k = 0; k < 4; ++k)
      if (!(std::abs(one[k] - other[k]) <= limits_.boxes + limits_.relative * std::abs(one[k]))) return false;
    if (!(std::abs(expected.scores[i] - actual.scores[j]) <= limits_.scores)) return false;
    if (expected.labels[i] != actual.labels[j]) return false;
    for (size_t e = 0; e < limits_.extras.size(); ++e) {
      const size_t size = expected.size(e);
      for (size_t k = 0; k < size; ++k) {
        const double wanted = expected.extras[e][i * size + k], got = actual.extras[e][j * size + k];
        const bool is_equal = wanted == got || (std::isnan(wanted) && std::isnan(got));
        if (!is_equal && !(std::abs(wanted - got) <= limits_.extras[e])) return false;
      }
    }
    return true;
  }

  // Rule 1: of all pairs that match, the closest become partners first.
  void pair_up(DetectionSet& expected, DetectionSet& actual) {
    struct Pair {
      double distance;
      size_t i, j;
    };
    std::vector<Pair> pairs;
    for (size_t i = 0; i < expected.count(); ++i) {
      for (size_t j = 0; j < actual.count(); ++j) {
        if (!is_match(expected, i, actual, j)) continue;
        const double score = std::abs(expected.scores[i] - actual.scores[j]);
        pairs.push_back({apart(expected.box(i), actual.box(j)) + score, i, j});
      }
    }
    std::stable_sort(pairs.begin(), pairs.end(),
                     [](const Pair& a, const Pair& b) { return a.distance < b.distance; });
    for (const Pair& pair : pairs) {
      if (expected.paired[pair.i] || actual.paired[pair.j]) continue;
      expected.paired[pair.i] = actual.paired[pair.j] = true;
      boxes.push_back(apart(expected.box(pair.i), actual.box(pair.j)));
      scores = std::max(scores, std::abs(expected.scores[pair.i] - actual.scores[pair.j]));
    }
  }

  void measure_moved(const DetectionSet& expected, const DetectionSet& actual) {
    for (size_t i = 0; i < expected.count(); ++i) {
      if (expected.paired[i]) continue;
      size_t best = actual.count();
      double most = 0.5;
      for (size_t j = 0; j < actual.count(); ++j) {
        const double overlap =
            expected.labels[i] == actual.labels[j] ? iou(expected.box(i), actual.box(j)) : 0;
        if (overlap <= most) continue;
        most = overlap;
        best = j;
      }
      if (best == actual.count()) continue;
      moved = std::max(moved, apart(expected.box(i), actual.box(best)));
      score_moved = std::max(score_moved, std::abs(expected.scores[i] - actual.scores[best]));
    }
  }

  // Rule 2: whether rounding explains that a detection has no partner on the other side.
  bool is_explained(const DetectionSet& set, size_t i, const DetectionSet& other) const {
    const double* const box = set.box(i);
    if (!std::all_of(box, box + 4, [](double edge) { return std::isfinite(edge); })) return false;
    if (set.scores[i] <= other.least_score(limits_.score_threshold) + limits_.scores) return true;
    // Moving the edges of a box of w x h pixels by b pixels changes an IoU by about b / w + b / h.
    double slack = limits_.iou;
    for (int axis = 0; axis < 2; ++axis)
      if (limits_.boxes > 0) slack += limits_.boxes / std::max(box[axis + 2] - box[axis], limits_.boxes);
    for (size_t j = 0; j < other.count(); ++j) {
      const double overlap = iou(box, other.box(j));
      const bool is_rival =
          overlap > limits_.iou_threshold - slack && other.scores[j] >= set.scores[i] - limits_.scores;
      // A rival that both sides have must overlap it by about the threshold, or both sides would drop it.
      if (is_rival && (!other.paired[j] || overlap <= limits_.iou_threshold + slack)) return true;
    }
    return false;
  }

  void count_unpaired(const DetectionSet& set, const DetectionSet& other) {
    bool is_first = true;
    for (size_t i = 0; i < set.count(); ++i) {
      if (set.paired[i]) continue;
      if (is_explained(set, i, other)) {
        ++by_rounding;
        continue;
      }
      ++unexplained_count;
      if (is_first) unexplained.push_back(described(set, i, other));
      is_first = false;
    }
  }

  static std::string described(const DetectionSet& set, size_t i, const DetectionSet& other) {
    const double* const box = set.box(i);
    std::ostringstream text;
    text << "a detection of score " << set.scores[i] << " at [" << box[0] << ", " << box[1] << ", " << box[2]
         << ", " << box[3] << "] has no counterpart";
    size_t nearest = other.count();
    double least = std::numeric_limits<double>::infinity();
    for (size_t j = 0; j < other.count(); ++j) {
      if (!(apart(box, other.box(j)) < least)) continue;
      least = apart(box, other.box(j));
      nearest = j;
    }
    if (nearest < other.count())
      text << "; the nearest is " << least << " px off and has a score of " << other.scores[nearest];
    return text.str();
  }

  SetLimits limits_;
};

}  // namespace lensbox
