#include <unistd.h>

#include <memory>

#include "commands.h"
#include "detect_images.h"
#include "detect_stream.h"
#include "model.h"
#include "raw_frames.h"
#include "standard_streams.h"
#include "stop_signal.h"
#include "usage_error.h"
#include "video_frames.h"

namespace {

void require_one_source(const DetectOptions& options) {
  const int sources = !options.images.empty() + options.raw.has_value() + !options.video.empty();
  if (sources != 1) {
    throw UsageError("detect needs one of --image, --raw and --video, got " + std::to_string(sources) +
                     " of them");
  }
}

}  // namespace

ExitCode run_detect(const ModelOptions& model, const DetectOptions& options) {
  require_one_source(options);
  if (!options.images.empty()) return detect_images(model, options);

  const StopSignal stop;
  end_on_closed_stdout();
  const LoadedDetector detector = load_detector(model, options);
  std::unique_ptr<FrameSource> frames;
  if (options.raw) {
    frames = std::make_unique<RawFrames>(STDIN_FILENO, STDOUT_FILENO, *options.raw, detector.reading,
                                         options.batch, stop);
  } else {
    frames = open_video(options.video, detector.reading, options.batch, stop);
  }
  return detect_stream(detector, *frames, options);
}
