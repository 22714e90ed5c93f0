#include <c10/core/thread_pool.h>
#include <lensbox/torch/tensors.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <functional>
#include <future>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "detect/gpu_jpeg.h"
#include "detect/steps.h"
#include "file/errors.h"

namespace lensbox {
namespace {

using Outcome = std::variant<Photo, InputError>;
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

// Read a few files, on the CPU those that the GPU leaves to it. decoder: of the GPU, or null.
Outcomes read(Paths files, const Reading& reading, const GpuJpegDecoder* decoder) {
  std::vector<std::optional<Photo>> decoded(files.size());
  if (decoder != nullptr) decoded = decoder->read(files);
  Outcomes outcomes;
  for (size_t i = 0; i < files.size(); ++i) {
    if (decoded[i]) {
      outcomes.emplace_back(*std::move(decoded[i]));
    } else {
      outcomes.push_back(photo_or_error(files[i], reading));
    }
  }
  return outcomes;
}

// Reads files in a fixed number of threads, ahead of the thread that takes them, in their order.
class ReadAhead {
 public:
  // Threads read a few files at a time, `group`, all of them of one batch. ahead: the number of groups, at
  // least two batches, that may be read, or being read, beside those that were taken.
  ReadAhead(size_t files, size_t batch, size_t group, size_t ahead, size_t threads,
            std::function<Outcomes(size_t first, size_t count)> read)
      : files_(files),
        batch_(batch),
        group_(group),
        ahead_(ahead),
        read_(std::move(read)),
        threads_(static_cast<int>(threads)) {
    fill();
  }

  // The number of files in the next batch; 0 after the last one.
  size_t next() const { return std::min(batch_, files_ - taken_); }

  // Whether the next batch can be taken without waiting.
  bool is_ready() const {
    const auto groups = static_cast<int64_t>((next() + group_ - 1) / group_);
    return std::all_of(reading_.begin(), reading_.begin() + groups, [](const std::future<Outcomes>& group) {
      return group.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
    });
  }

  // Wait for the next batch. Throws what a thread threw that read it.
  Outcomes take() {
    Outcomes batch;
    for (const size_t end = taken_ + next(); taken_ < end; reading_.pop_front()) {
      Outcomes group = reading_.front().get();
      taken_ += group.size();
      std::ranges::move(group, std::back_inserter(batch));
    }
    fill();
    return batch;
  }

 private:
  // Let the threads read the groups that may be read.
  void fill() {
    for (size_t count = 0; queued_ < files_ && reading_.size() < ahead_; queued_ += count) {
      count = std::min({group_, batch_ - queued_ % batch_, files_ - queued_});
      const auto task = std::make_shared<std::packaged_task<Outcomes()>>(
          [this, first = queued_, count] { return read_(first, count); });
      reading_.push_back(task->get_future());
      threads_.run([task] { (*task)(); });
    }
  }

  const size_t files_, batch_, group_, ahead_;
  const std::function<Outcomes(size_t, size_t)> read_;
  size_t queued_ = 0, taken_ = 0;              // files
  std::deque<std::future<Outcomes>> reading_;  // the groups behind those that were taken
  c10::ThreadPool threads_;  // last: its destructor drops the groups that no thread has begun to read
};

// A batch of files whose detections are being computed.
struct Batch {
  std::vector<Photo> photos;  // of the readable files, for tiles
  std::vector<FileOutcome> outcomes;
  Found found;
};

// Wait for the next batch of files, and start detecting. A GPU may go on after the return.
Batch start(ReadAhead& readers, const Detector& detector, const FilesOptions& options) {
  Batch batch;
  for (Outcome& file : readers.take()) {
    if (auto* const photo = std::get_if<Photo>(&file)) {
      batch.outcomes.emplace_back(FileDetections{photo->width, photo->height, {}});
      batch.photos.push_back(std::move(*photo));
    } else {
      batch.outcomes.emplace_back(std::get<InputError>(std::move(file)));
    }
  }
  if (!options.tiles && !batch.photos.empty()) {
    batch.found = detect_tensors(detector, batch.photos, options.thresholds);
    batch.photos.clear();
  }
  return batch;
}

FileOutcome detect_in_tiles(const Detector& detector, const Photo& photo, const FilesOptions& options) {
  std::vector<Photo> views;
  try {
    views = cut_into_tiles(photo, detector.metadata().reading.canvas, *options.tiles);
  } catch (const InputError& error) {  // too many tiles
    return error;
  }
  return FileDetections{photo.width, photo.height, detect_views(detector, views, options.thresholds)};
}

// Return the outcomes of all files, in order.
std::vector<FileOutcome> finish(Batch batch, const Detector& detector, const FilesOptions& options) {
  std::vector<std::vector<Detection>> found;
  if (batch.found.boxes.defined()) found = collect(detector, batch.found);
  size_t next = 0;
  for (FileOutcome& outcome : batch.outcomes) {
    auto* const file = std::get_if<FileDetections>(&outcome);
    if (file == nullptr) continue;
    if (options.tiles) {
      outcome = detect_in_tiles(detector, batch.photos[next++], options);
    } else {
      file->detections = std::move(found[next++]);
    }
  }
  return std::move(batch.outcomes);
}

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
  // A GPU decodes whole batches, and checks one batch while it decodes another.
  const size_t group = decoder != nullptr ? batch_size : group_size(batch_size, threads);
  const size_t groups = (batch_size + group - 1) / group;  // of a batch
  const size_t ahead = decoder != nullptr ? 4 : groups + std::max(groups, threads);
  const auto readers = guarded([&] {
    return std::make_unique<ReadAhead>(
        files.size(), batch_size, group, ahead, threads,
        [&](size_t first, size_t count) { return read(files.subspan(first, count), reading, decoder); });
  });
  size_t reported = 0;
  std::optional<Batch> started;
  const auto report_started = [&] {
    if (!started) return;
    const auto outcomes = guarded([&] { return finish(*std::move(started), detector, options); });
    started.reset();
    for (const FileOutcome& outcome : outcomes) {
      report(reported++, outcome);
    }
  };
  while (readers->next() > 0) {
    // Let the GPU compute the next batch while this one is reported, unless it would wait for the next.
    if (!readers->is_ready()) report_started();
    std::optional<Batch> batch;
    try {
      batch = guarded([&] { return start(*readers, detector, options); });
    } catch (const Error&) {
      report_started();  // the batches before a failure
      throw;
    }
    report_started();
    started = std::move(batch);
  }
  report_started();
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
