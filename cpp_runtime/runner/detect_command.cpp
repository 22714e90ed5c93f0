#include <unistd.h>

#include <exception>
#include <iostream>
#include <utility>
#include <variant>
#include <vector>

#include "boxes_json.h"
#include "commands.h"
#include "frames.h"
#include "image_list.h"
#include "streams.h"

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

lensbox::Detector load(const ModelOptions& model, const DetectOptions& options) {
  lensbox::Detector detector = lensbox::Detector::load(model.artifact, model.load);
  if (options.capture) {
    const auto batch = static_cast<int64_t>(options.files.batch_size);
    detector.capture({&batch, 1}, options.files.thresholds);
  }
  return detector;
}

ExitCode detect_images(const ModelOptions& model, const DetectOptions& options) {
  const std::vector<ListedImage> images = list_images(options.images, options.recursive);
  const lensbox::Detector detector = load(model, options);
  if (options.json_lines) end_on_closed_stdout();

  Json document = {{"images", Json::array()}};
  ExitCode code = ExitCode::kGood;
  const auto report = [&](size_t i, const lensbox::FileOutcome& outcome) {
    Json entry = {{"file", images[i].path.string()}};
    const auto* const error = std::get_if<lensbox::InputError>(&outcome);
    if (error != nullptr) {
      const std::string reason = images[i].fault.empty() ? error->what() : images[i].fault;
      std::cerr << "lensbox_runner: " << reason << '\n';
      entry["error"] = reason;
      code = ExitCode::kInput;
    } else {
      const auto& file = std::get<lensbox::FileDetections>(outcome);
      entry["width"] = file.width;
      entry["height"] = file.height;
      entry["detections"] = to_json(file.detections, detector.metadata());
    }
    if (options.json_lines) {
      print_line(entry);
    } else {
      document["images"].push_back(std::move(entry));
    }
  };
  std::vector<fs::path> files;
  for (const ListedImage& image : images) {
    files.push_back(image.path);
  }
  detector.detect_files(files, options.files, report);
  if (!options.json_lines) print_line(document);
  return code;
}

// Read frames until the batch is full or the stream ends. Return why a frame cannot be read; the frames
// before it are processed first.
std::exception_ptr fill(std::vector<lensbox::Photo>& batch, size_t size, RawFrames& frames) {
  batch.clear();
  try {
    while (batch.size() < size) {
      auto frame = frames.read();
      if (!frame) break;
      batch.push_back(std::move(*frame));
    }
  } catch (const ClosedOutput&) {
    throw;  // stdout is closed
  } catch (...) {
    return std::current_exception();
  }
  return nullptr;
}

// Detect in frame after frame, and print a line for each.
ExitCode detect_stream(const lensbox::Detector& detector, RawFrames& frames, const DetectOptions& options) {
  int64_t reported = 0;
  std::vector<lensbox::Photo> batch;
  do {
    const std::exception_ptr failure = fill(batch, options.files.batch_size, frames);
    const auto found = detect_photos(detector, batch, options.files.thresholds);
    for (size_t i = 0; i < batch.size(); ++i) {
      print_line({{"frame", reported++},
                  {"width", batch[i].width},
                  {"height", batch[i].height},
                  {"detections", to_json(found[i], detector.metadata())}});
    }
    if (failure) std::rethrow_exception(failure);
  } while (batch.size() == options.files.batch_size);
  frames.check_end();
  return ExitCode::kGood;
}

}  // namespace

ExitCode run_detect(const ModelOptions& model, const DetectOptions& options) {
  if (options.images.empty() != options.raw.has_value()) {
    throw UsageError(std::string("detect needs one of --image and --raw, got ") +
                     (options.raw ? "both" : "none"));
  }
  if (!options.images.empty()) return detect_images(model, options);

  const int stop = request_end_on_signals();
  end_on_closed_stdout();
  const lensbox::Detector detector = load(model, options);
  RawFrames frames(STDIN_FILENO, STDOUT_FILENO, *options.raw, detector.metadata().reading, stop);
  return detect_stream(detector, frames, options);
}
