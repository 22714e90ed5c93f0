#include "detect_stream.h"

#include <lensbox/torch/boxes_json.h>

#include <exception>
#include <utility>
#include <vector>

#include "json_output.h"
#include "standard_streams.h"

namespace {

// Reads frames until the batch is full or there are no more. Returns why one cannot be read: those before it
// are answered first.
std::exception_ptr fill(std::vector<lensbox::Photo>& batch, size_t size, FrameSource& frames) {
  batch.clear();
  try {
    while (batch.size() < size) {
      auto frame = frames.read(batch.size());
      if (!frame) break;
      batch.push_back(std::move(*frame));
    }
  } catch (const ClosedOutput&) {
    throw;  // nobody is there to be answered
  } catch (...) {
    return std::current_exception();
  }
  return nullptr;
}

}  // namespace

ExitCode detect_stream(const LoadedDetector& detector, FrameSource& frames, const DetectOptions& options) {
  const lensbox::Metadata& metadata = detector.artifact.metadata();
  int64_t reported = 0;
  std::vector<lensbox::Photo> batch;
  do {
    const std::exception_ptr failure = fill(batch, options.batch, frames);
    const auto found = detector.artifact.detect(batch, detector.score_threshold, detector.iou_threshold);
    for (size_t i = 0; i < batch.size(); ++i) {
      print_line({{"frame", reported++},
                  {"width", batch[i].width},
                  {"height", batch[i].height},
                  {"detections", lensbox::to_json(found[i], metadata.classes, metadata.extras)}});
    }
    if (failure) std::rethrow_exception(failure);
  } while (batch.size() == options.batch);
  frames.check_end();
  return ExitCode::kGood;
}
