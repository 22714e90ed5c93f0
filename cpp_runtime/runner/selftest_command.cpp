#include <lensbox/torch/self_test.h>

#include "commands.h"
#include "json_output.h"
#include "model.h"

ExitCode run_selftest(const ModelOptions& model) {
  const lensbox::SelfTestReport report = lensbox::run_self_test(load(model));
  print_line({
      {"passed", report.passed()},
      {"failures", report.failures},
      {"max_box_error", report.max_box_error},
      {"max_score_error", report.max_score_error},
      {"loss_error", report.loss_error},
  });
  return report.passed() ? ExitCode::kGood : ExitCode::kArtifact;
}
