#include <lensbox/torch/tensors.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "detect/read_ahead.h"
#include "file/errors.h"

namespace lensbox {
namespace {

// The files of a batch of photographs, and the unreadable files between them.
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

  // Return the outcomes of all files, in order, and empty the batch.
  std::vector<FileOutcome> detect(const Detector& detector, const Thresholds& thresholds) {
    auto found = detect_photos(detector, photos_, thresholds);
    photos_.clear();
    auto next = found.begin();
    for (FileOutcome& outcome : outcomes_) {
      auto* const file = std::get_if<FileDetections>(&outcome);
      if (file != nullptr) file->detections = std::move(*next++);
    }
    return std::exchange(outcomes_, {});
  }

 private:
  std::vector<Photo> photos_;
  std::vector<FileOutcome> outcomes_;
};

void check_at_least_one(const char* option, size_t value) {
  if (value > 0) return;
  throw InputError(std::string("options.") + option + " must be at least 1, got 0");
}

}  // namespace

void Detector::detect_files(std::span<const std::filesystem::path> files, const FilesOptions& options,
                            const std::function<void(size_t, const FileOutcome&)>& report) const {
  check_at_least_one("batch_size", options.batch_size);
  check_at_least_one("decode_threads", options.decode_threads);
  Reading reading = metadata().reading;
  reading.orientation = options.orientation.value_or(reading.orientation);
  // While the device works on one batch, the next may be read as a whole.
  const size_t threads = std::min(options.decode_threads, files.size());
  const size_t batch_size = std::min(options.batch_size, files.size());
  const auto photographs = guarded([&] {
    return std::make_unique<ReadAhead>(std::vector(files.begin(), files.end()), reading, threads,
                                       batch_size + threads);
  });
  Batch batch;
  size_t reported = 0;
  for (size_t taken = 1; taken <= files.size(); ++taken) {
    guarded([&] { batch.add(photographs->next()); });
    if (batch.photos() < batch_size && taken < files.size()) continue;
    const auto outcomes = guarded([&] { return batch.detect(*this, options.thresholds); });
    for (const FileOutcome& outcome : outcomes) {
      report(reported++, outcome);
    }
  }
}

}  // namespace lensbox
