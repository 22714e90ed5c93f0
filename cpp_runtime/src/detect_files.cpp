#include <lensbox/torch/detect_files.h>

#include <algorithm>
#include <utility>

#include "read_ahead.h"

namespace lensbox {
namespace {

using Outcome = std::variant<FileDetections, InputError>;

// Files whose photographs make up a batch, and those between them that cannot be read.
class Batch {
 public:
  void add(std::variant<Photo, InputError> read) {
    if (auto* const photo = std::get_if<Photo>(&read)) {
      outcomes_.emplace_back(FileDetections{photo->width, photo->height, {}});
      photos_.push_back(std::move(*photo));
    } else {
      outcomes_.emplace_back(std::get<InputError>(std::move(read)));
    }
  }

  size_t photos() const { return photos_.size(); }

  // Of all files in it, in order. The batch is empty afterwards.
  std::vector<Outcome> detect(const Artifact& artifact, const DetectFilesOptions& options) {
    auto found = artifact.detect(photos_, options.score_threshold, options.iou_threshold);
    photos_.clear();
    auto next = found.begin();
    for (Outcome& outcome : outcomes_) {
      auto* const file = std::get_if<FileDetections>(&outcome);
      if (file != nullptr) file->detections = std::move(*next++);
    }
    return std::exchange(outcomes_, {});
  }

 private:
  std::vector<Photo> photos_;
  std::vector<Outcome> outcomes_;
};

}  // namespace

void detect_files(const Artifact& artifact, const std::vector<std::filesystem::path>& files,
                  const DetectFilesOptions& options,
                  const std::function<void(size_t, const Outcome&)>& report) {
  // While the device works on one batch, the next may be read as a whole.
  const size_t threads = std::min(options.decode_threads, files.size());
  ReadAhead photographs(files, options.reading, threads, options.batch_size + options.decode_threads);
  Batch batch;
  size_t reported = 0;
  for (size_t taken = 1; taken <= files.size(); ++taken) {
    batch.add(photographs.next());
    if (batch.photos() < options.batch_size && taken < files.size()) continue;
    for (const Outcome& outcome : batch.detect(artifact, options)) {
      report(reported++, outcome);
    }
  }
}

}  // namespace lensbox
