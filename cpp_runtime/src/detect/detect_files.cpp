#include <lensbox/torch/tensors.h>

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>

#include "detect/tiles.h"
#include "file/errors.h"

namespace lensbox {
namespace {

// Reads photographs in threads of its own; next() takes them in order. At most `most_ahead` files are being
// read or waiting to be taken at a time. The destructor waits for the files being read.
class ReadAhead {
 public:
  ReadAhead(std::vector<std::filesystem::path> files, const Reading& reading, size_t threads,
            size_t most_ahead);

  // Return the next file's photograph, or why it cannot be read. Rethrows any other exception, such as a lack
  // of memory. May be called as often as there are files.
  std::variant<Photo, InputError> next();

 private:
  using Outcome = std::variant<Photo, InputError, std::exception_ptr>;

  void work(const std::stop_token& stop);
  Outcome read(const std::filesystem::path& file) const;

  const std::vector<std::filesystem::path> files_;
  const Reading reading_;
  const size_t most_ahead_;

  std::mutex mutex_;
  std::condition_variable_any changed_;
  // The outcomes of files that were read and not yet taken; file i has the place i % most_ahead_.
  std::vector<std::optional<Outcome>> outcomes_;
  size_t begun_ = 0;
  size_t taken_ = 0;
  std::vector<std::jthread> threads_;  // the last, so that they end first
};

ReadAhead::ReadAhead(std::vector<std::filesystem::path> files, const Reading& reading, size_t threads,
                     size_t most_ahead)
    : files_(std::move(files)), reading_(reading), most_ahead_(most_ahead), outcomes_(most_ahead) {
  for (size_t i = 0; i < threads; ++i) {
    threads_.emplace_back([this](const std::stop_token& stop) { work(stop); });
  }
}

std::variant<Photo, InputError> ReadAhead::next() {
  std::unique_lock lock(mutex_);
  std::optional<Outcome>& place = outcomes_.at(taken_ % most_ahead_);
  changed_.wait(lock, [&] { return place.has_value(); });
  Outcome outcome = std::move(*place);
  place.reset();
  ++taken_;
  changed_.notify_all();
  if (auto* const photo = std::get_if<Photo>(&outcome)) return std::move(*photo);
  if (auto* const error = std::get_if<InputError>(&outcome)) return *error;
  std::rethrow_exception(std::get<std::exception_ptr>(outcome));
}

void ReadAhead::work(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  while (begun_ < files_.size()) {
    if (begun_ >= taken_ + most_ahead_) {
      // Another thread may begin the last file meanwhile, so the loop checks again.
      if (!changed_.wait(lock, stop, [&] { return begun_ < taken_ + most_ahead_; })) return;
      continue;
    }
    if (stop.stop_requested()) return;
    const size_t index = begun_++;
    lock.unlock();
    Outcome outcome = read(files_[index]);
    lock.lock();
    outcomes_[index % most_ahead_] = std::move(outcome);
    changed_.notify_all();
  }
}

ReadAhead::Outcome ReadAhead::read(const std::filesystem::path& file) const {
  try {
    return read_photo(file, reading_);
  } catch (const InputError& error) {
    return error;
  } catch (...) {
    return std::current_exception();
  }
}

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
  std::vector<FileOutcome> detect(const Detector& detector, const FilesOptions& options) {
    if (options.tiles) return detect_in_tiles(detector, options);
    auto found = detect_photos(detector, photos_, options.thresholds);
    photos_.clear();
    auto next = found.begin();
    for (FileOutcome& outcome : outcomes_) {
      auto* const file = std::get_if<FileDetections>(&outcome);
      if (file != nullptr) file->detections = std::move(*next++);
    }
    return std::exchange(outcomes_, {});
  }

 private:
  std::vector<FileOutcome> detect_in_tiles(const Detector& detector, const FilesOptions& options) {
    auto next = photos_.begin();
    for (FileOutcome& outcome : outcomes_) {
      auto* const file = std::get_if<FileDetections>(&outcome);
      if (file == nullptr) continue;
      std::vector<Photo> views;
      try {
        views = cut_into_tiles(*next++, detector.metadata().reading.canvas, *options.tiles);
      } catch (const InputError& error) {  // too many tiles
        outcome = error;
        continue;
      }
      file->detections = detect_views(detector, views, options.thresholds);
    }
    photos_.clear();
    return std::exchange(outcomes_, {});
  }

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
  if (options.tiles) {
    check_tiles(*options.tiles);
    reading.jpeg_oversampling = 0;
  }
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
    const auto outcomes = guarded([&] { return batch.detect(*this, options); });
    for (const FileOutcome& outcome : outcomes) {
      report(reported++, outcome);
    }
  }
}

}  // namespace lensbox
