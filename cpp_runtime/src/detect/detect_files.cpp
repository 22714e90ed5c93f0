#include <lensbox/torch/tensors.h>

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "detect/gpu_jpeg.h"
#include "detect/steps.h"
#include "file/errors.h"

namespace lensbox {
namespace {

using Outcome = std::variant<Photo, CodedPhoto, InputError>;
using Outcomes = std::vector<Outcome>;
using Paths = std::span<const std::filesystem::path>;
using FileReport = std::function<void(size_t, const FileOutcome&)>;

Outcome photo_or_error(const std::filesystem::path& file, const Reading& reading) {
  try {
    return read_photo(file, reading);
  } catch (const InputError& error) {
    return error;
  }
}

// Read a few files. decoder: of the GPU, or null.
Outcomes read(Paths files, const Reading& reading, const GpuJpegDecoder* decoder) {
  std::vector<std::optional<CodedPhoto>> coded(files.size());
  if (decoder != nullptr) coded = decoder->coded(files);
  Outcomes outcomes;
  for (size_t i = 0; i < files.size(); ++i) {
    if (coded[i]) {
      outcomes.emplace_back(*std::move(coded[i]));
    } else {
      outcomes.push_back(photo_or_error(files[i], reading));
    }
  }
  return outcomes;
}

// Decode the files that the readers left to the GPU, and on the CPU those that the GPU refuses.
void decode_coded(Outcomes& files, const GpuJpegDecoder& decoder, const Reading& reading) {
  std::vector<CodedPhoto> coded;
  std::vector<Outcome*> places;
  for (Outcome& file : files) {
    if (auto* const photo = std::get_if<CodedPhoto>(&file)) {
      coded.push_back(std::move(*photo));
      places.push_back(&file);
    }
  }
  auto decoded = decoder.decode(coded);
  for (size_t i = 0; i < coded.size(); ++i) {
    if (decoded[i]) {
      *places[i] = *std::move(decoded[i]);
    } else {
      *places[i] = photo_or_error(coded[i].path, reading);
    }
  }
}

// Reads files in a fixed number of threads, ahead of the thread that takes them, in their order.
class ReadAhead {
 public:
  // Threads read a few files at a time, `group`, all of them of one batch. ahead: the number of files that
  // may be read, or being read, beside those that were taken.
  ReadAhead(size_t files, size_t batch, size_t group, size_t ahead, size_t threads,
            std::function<Outcomes(size_t first, size_t count)> read)
      : files_(files), batch_(batch), group_(group), ahead_(ahead), read_(std::move(read)) {
    for (size_t i = 0; i < threads; ++i) {
      threads_.emplace_back([this](std::stop_token stop) { run(stop); });
    }
  }

  // The number of files in the next batch; 0 after the last one.
  size_t next() const { return std::min(batch_, files_ - taken_); }

  // Whether the next batch can be taken without waiting.
  bool is_ready() {
    const std::lock_guard lock(mutex_);
    return has_read(next());
  }

  // Wait for the next batch. Throws what a thread threw that read it.
  Outcomes take() {
    const size_t count = next();
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return has_read(count); });
    Outcomes batch;
    std::exception_ptr failure;
    for (const size_t end = taken_ + count; !read_groups_.empty() && read_groups_.begin()->first < end;) {
      Group group = std::move(read_groups_.extract(read_groups_.begin()).mapped());
      if (group.failure && !failure) failure = group.failure;
      std::ranges::move(group.outcomes, std::back_inserter(batch));
    }
    taken_ += count;
    changed_.notify_all();
    if (failure) std::rethrow_exception(failure);
    return batch;
  }

 private:
  struct Group {
    size_t count;
    Outcomes outcomes;
    std::exception_ptr failure;
  };

  // Whether the next `count` files are read.
  bool has_read(size_t count) const {
    size_t found = 0;
    for (auto group = read_groups_.begin(); group != read_groups_.end() && group->first < taken_ + count;
         ++group) {
      found += group->second.count;
    }
    return found == count;
  }

  void run(const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    while (changed_.wait(lock, stop, [this] { return begun_ == files_ || begun_ < taken_ + ahead_; }) &&
           !stop.stop_requested() && begun_ < files_) {
      const size_t first = begun_;
      const size_t count = std::min({group_, batch_ - first % batch_, files_ - first});
      begun_ += count;
      lock.unlock();
      Group group{count, {}, nullptr};
      try {
        group.outcomes = read_(first, count);
      } catch (...) {
        group.failure = std::current_exception();
      }
      lock.lock();
      read_groups_.emplace(first, std::move(group));
      changed_.notify_all();
    }
  }

  const size_t files_, batch_, group_, ahead_;
  const std::function<Outcomes(size_t, size_t)> read_;
  std::mutex mutex_;
  std::condition_variable_any changed_;
  size_t begun_ = 0;                     // files that a thread has begun to read
  size_t taken_ = 0;                     // changed by the taking thread alone
  std::map<size_t, Group> read_groups_;  // by the index of their first file
  std::vector<std::jthread> threads_;    // last: the destructor stops and joins them first
};

// A batch of files. Exceptions are thrown by finish(), after the batches before it were reported.
class Batch {
 public:
  // Wait for the readers.
  explicit Batch(ReadAhead& readers) {
    attempt([&] {
      for (Outcome& file : readers.take()) {
        add(std::move(file));
      }
    });
  }

  // Start detecting. A GPU may go on after the return.
  void start(const Detector& detector, const FilesOptions& options) {
    if (failure_ || options.tiles || photos_.empty()) return;
    attempt([&] { found_ = detect_tensors(detector, photos_, options.thresholds); });
    photos_.clear();
  }

  // Return the outcomes of all files, in order.
  std::vector<FileOutcome> finish(const Detector& detector, const FilesOptions& options) {
    if (failure_) std::rethrow_exception(failure_);
    if (options.tiles) detect_in_tiles(detector, options);
    if (found_.boxes.defined()) {
      auto found = collect(detector, found_);
      auto next = found.begin();
      for (FileOutcome& outcome : outcomes_) {
        auto* const file = std::get_if<FileDetections>(&outcome);
        if (file != nullptr) file->detections = std::move(*next++);
      }
    }
    return std::move(outcomes_);
  }

 private:
  template <class Function>
  void attempt(Function function) {
    try {
      function();
    } catch (...) {
      failure_ = std::current_exception();
    }
  }

  void add(Outcome read) {
    if (auto* const photo = std::get_if<Photo>(&read)) {
      outcomes_.emplace_back(FileDetections{photo->width, photo->height, {}});
      photos_.push_back(std::move(*photo));
    } else {
      outcomes_.emplace_back(std::get<InputError>(std::move(read)));
    }
  }

  void detect_in_tiles(const Detector& detector, const FilesOptions& options) {
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
  }

  std::vector<Photo> photos_;  // of the readable files
  std::vector<FileOutcome> outcomes_;
  Found found_;
  std::exception_ptr failure_;
};

// Threads take a few files at a time, to save hand-overs; at least two groups for each thread and batch, so
// that no thread waits long for another.
size_t group_size(size_t batch_size, size_t threads) {
  constexpr size_t kMost = 8;
  return std::clamp<size_t>(batch_size / (2 * threads), 1, kMost);
}

void check_at_least_one(const char* option, size_t value) {
  if (value > 0) return;
  throw InputError(std::string("options.") + option + " must be at least 1, got 0");
}

}  // namespace

void detect_files(const Detector& detector, Paths files, const FilesOptions& options, const Reading& reading,
                  const GpuJpegDecoder* decoder, const FileReport& report) {
  if (files.empty()) return;
  const size_t threads = std::min(options.decode_threads, files.size());
  const size_t batch_size = std::min(options.batch_size, files.size());
  const auto read_group = [&](size_t first, size_t count) {
    Outcomes group = read(files.subspan(first, count), reading, decoder);
    if (decoder != nullptr) decode_coded(group, *decoder, reading);
    return group;
  };
  // A GPU decodes whole batches, and checks one batch while it decodes another.
  const size_t group = decoder != nullptr ? batch_size : group_size(batch_size, threads);
  const size_t ahead = decoder != nullptr ? 4 * batch_size : batch_size + std::max(batch_size, threads);
  const auto readers = guarded([&] {
    return std::make_unique<ReadAhead>(files.size(), batch_size, group, ahead, threads, read_group);
  });
  size_t reported = 0;
  const auto report_batch = [&](Batch& batch) {
    const auto outcomes = guarded([&] { return batch.finish(detector, options); });
    for (const FileOutcome& outcome : outcomes) {
      report(reported++, outcome);
    }
  };
  std::optional<Batch> started;
  while (started || readers->next() > 0) {
    // Let the GPU compute the next batch while this one is reported, unless it would wait for the next.
    if (started && (readers->next() == 0 || !readers->is_ready())) {
      report_batch(*started);
      started.reset();
    }
    if (readers->next() == 0) continue;
    Batch batch(*readers);
    batch.start(detector, options);
    if (started) report_batch(*started);
    started = std::move(batch);
  }
}

void Detector::detect_files(Paths files, const FilesOptions& options, const FileReport& report) const {
  check_at_least_one("batch_size", options.batch_size);
  check_at_least_one("decode_threads", options.decode_threads);
  Reading reading = metadata().reading;
  reading.orientation = options.orientation.value_or(reading.orientation);
  if (options.tiles) {
    check_tiles(*options.tiles);
    reading.jpeg_oversampling = 0;
  }
  const c10::Device device = device_of(*this);
  const auto decoder = options.tiles ? nullptr : guarded([&] {
    return gpu_jpeg_decoder(device, reading, options.decode, options.batch_size);
  });
  lensbox::detect_files(*this, files, options, reading, decoder.get(), report);
}

}  // namespace lensbox
