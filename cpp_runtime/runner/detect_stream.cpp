#include "detect_stream.h"

#include <lensbox/torch/boxes_json.h>

#include <vector>

#include "json_output.h"

ExitCode detect_stream(const LoadedDetector& detector, FrameSource& frames, const DetectOptions& options) {
  const lensbox::Metadata& metadata = detector.artifact.metadata();
  int64_t reported = 0;
  std::vector<lensbox::Photo> batch;
  do {
    batch.clear();
    while (batch.size() < options.batch) {
      auto frame = frames.read(batch.size());
      if (!frame) break;
      batch.push_back(std::move(*frame));
    }
    const auto found = detector.artifact.detect(batch, detector.score_threshold, detector.iou_threshold);
    for (size_t i = 0; i < batch.size(); ++i) {
      print_line({{"frame", reported++},
                  {"width", batch[i].width},
                  {"height", batch[i].height},
                  {"detections", lensbox::to_json(found[i], metadata.classes, metadata.extras)}});
    }
  } while (batch.size() == options.batch);
  frames.check_end();
  return ExitCode::kGood;
}
