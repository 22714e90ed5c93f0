#pragma once

#include <string>
#include <vector>

namespace lensbox {

// The greatest absolute differences between what the artifact computes here and what it computed when it was
// written. If the number of detections differs, that is a failure and the errors are those of the first few
// that both have.
struct SelfTestReport {
  std::vector<std::string> failures;  // empty: passed
  double max_box_error;               // pixels
  double max_score_error;
  double loss_error;

  bool passed() const { return failures.empty(); }
};

}  // namespace lensbox
