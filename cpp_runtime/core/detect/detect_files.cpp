#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <future>
#include <iterator>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "backends/call.h"
#include "detect/steps.h"
#include "file/errors.h"
#include "images/decoders.h"

namespace lensbox {
namespace {

using Outcome = std::variant<Source, InputError>;
using Outcomes = std::vector<Outcome>;
using Paths = std::span<const std::filesystem::path>;

// Reads files in a fixed number of threads, ahead of the thread that takes them, in their order.
class ReadAhead {
 public:
  // on_gpu: none if the CPU decodes. Throws Error if the system refuses a thread.
  ReadAhead(Paths files, const FilesOptions& options, Reading reading, DeviceReader on_gpu)
      : files_(files),
        reading_(std::move(reading)),
        on_gpu_(std::move(on_gpu)),
        batch_(std::min(options.batch_size, files.size())) {
    const size_t threads = std::min(options.decode_threads, files.size());
    // A GPU decodes whole batches, and checks one batch while it decodes another. Threads on a CPU take a few
    // files at a time, to save hand-overs; at least two groups for each thread and batch, so that no thread
    // waits long for another.
    constexpr size_t kMost = 8;
    group_ = on_gpu_ ? batch_ : std::clamp<size_t>(batch_ / (2 * threads), 1, kMost);
    const size_t groups = (batch_ + group_ - 1) / group_;  // of a batch
    ahead_ = on_gpu_ ? 4 : groups + std::max(groups, threads);
    try {
      while (threads_.size() < threads) {
        threads_.emplace_back([this](const std::stop_token& stop) { work(stop); });
      }
    } catch (const std::system_error& error) {
      throw Error(ErrorCode::kInternal, "decode_threads: the system gives " +
                                            std::to_string(threads_.size()) + " of " +
                                            std::to_string(threads) + " threads: " + error.what());
    }
    fill();
  }

  ~ReadAhead() {
    std::ranges::for_each(threads_, [](std::jthread& thread) { thread.request_stop(); });
  }

  // The number of files in the next batch; 0 after the last one.
  size_t next() const { return std::min(batch_, files_.size() - taken_); }

  // Whether the next batch can be taken without waiting.
  bool is_ready() const {
    const auto groups = static_cast<int64_t>((next() + group_ - 1) / group_);
    return std::all_of(reading_groups_.begin(), reading_groups_.begin() + groups, [](const auto& group) {
      return group.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
    });
  }

  // Wait for the next batch. Throws what a thread threw that read it.
  Outcomes take() {
    Outcomes batch;
    for (const size_t end = taken_ + next(); taken_ < end; reading_groups_.pop_front()) {
      Outcomes group = reading_groups_.front().get();
      taken_ += group.size();
      std::ranges::move(group, std::back_inserter(batch));
    }
    fill();
    return batch;
  }

 private:
  // Let the threads read the groups that may be read: all of one batch.
  void fill() {
    const std::lock_guard lock(mutex_);
    for (size_t count = 0; queued_ < files_.size() && reading_groups_.size() < ahead_; queued_ += count) {
      count = std::min({group_, batch_ - queued_ % batch_, files_.size() - queued_});
      tasks_.emplace_back([this, group = files_.subspan(queued_, count)] { return read(group); });
      reading_groups_.push_back(tasks_.back().get_future());
    }
    has_tasks_.notify_all();
  }

  void work(const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    while (has_tasks_.wait(lock, stop, [this] { return !tasks_.empty(); }) && !stop.stop_requested()) {
      std::packaged_task<Outcomes()> task = std::move(tasks_.front());
      tasks_.pop_front();
      lock.unlock();
      task();
      lock.lock();
    }
  }

  // Read a few files, on the CPU those that the GPU leaves to it.
  Outcomes read(Paths group) const {
    std::vector<std::optional<Source>> decoded(group.size());
    if (on_gpu_) decoded = on_gpu_(group);
    Outcomes outcomes;
    for (size_t i = 0; i < group.size(); ++i) {
      try {
        const Call call;
        outcomes.emplace_back(decoded[i] ? *std::move(decoded[i]) : Source{decode_file(group[i], reading_)});
      } catch (const InputError& error) {
        outcomes.emplace_back(error);
      }
    }
    return outcomes;
  }

  const Paths files_;
  const Reading reading_;
  const DeviceReader on_gpu_;
  const size_t batch_;
  size_t group_ = 0, ahead_ = 0;                      // files; groups read, or being read, beside those taken
  size_t queued_ = 0, taken_ = 0;                     // files
  std::deque<std::future<Outcomes>> reading_groups_;  // behind those that were taken
  std::mutex mutex_;                                  // of the tasks
  std::condition_variable_any has_tasks_;
  std::deque<std::packaged_task<Outcomes()>> tasks_;  // that no thread has begun
  std::vector<std::jthread> threads_;
};

// A batch of files whose detections are being computed.
struct Batch {
  std::vector<Source> photos;  // of the readable files, for tiles
  std::vector<FileOutcome> outcomes;
  PendingBatch found;
};

// Wait for the next batch of files, and start detecting. A GPU may go on after the return.
Batch start(ReadAhead& readers, const Detector::Parts& parts, const FilesOptions& options) {
  Batch batch;
  for (Outcome& file : readers.take()) {
    if (auto* const photo = std::get_if<Source>(&file)) {
      batch.outcomes.emplace_back(FileDetections{photo->photo.width, photo->photo.height, {}});
      batch.photos.push_back(std::move(*photo));
    } else {
      batch.outcomes.emplace_back(std::get<InputError>(std::move(file)));
    }
  }
  if (!options.tiles && !batch.photos.empty()) {
    const auto [score, iou] = checked(options.thresholds, parts.metadata);
    batch.found = parts.backend->detect(batch.photos, score, iou);
    batch.photos.clear();
  }
  return batch;
}

FileOutcome detect_in_tiles(const Detector::Parts& parts, const DecodedPhoto& photo,
                            const FilesOptions& options) {
  try {
    return FileDetections{photo.width, photo.height,
                          detect_in_tiles(parts, photo, *options.tiles, options.thresholds)};
  } catch (const InputError& error) {  // too many tiles
    return error;
  }
}

// Return the outcomes of all files, in order.
std::vector<FileOutcome> finish(Batch batch, const Detector::Parts& parts, const FilesOptions& options) {
  std::vector<std::vector<Detection>> found;
  if (batch.found) found = collect(parts.artifact, outputs_of(parts.metadata), batch.found());
  size_t next = 0;
  for (FileOutcome& outcome : batch.outcomes) {
    auto* const file = std::get_if<FileDetections>(&outcome);
    if (file == nullptr) continue;
    if (options.tiles) {
      outcome = detect_in_tiles(parts, batch.photos[next++].photo, options);
    } else {
      file->detections = std::move(found[next++]);
    }
  }
  return std::move(batch.outcomes);
}

}  // namespace

void Detector::detect_files(Paths files, const FilesOptions& options,
                            const std::function<void(size_t, const FileOutcome&)>& report) const {
  if (options.batch_size == 0) throw InputError("options.batch_size must be at least 1, got 0");
  if (options.decode_threads == 0) throw InputError("options.decode_threads must be at least 1, got 0");
  Reading reading = metadata().reading;
  reading.orientation = options.orientation.value_or(reading.orientation);
  checked(options.thresholds, metadata());
  if (options.tiles) {
    check_tiles(*options.tiles);
    reading.jpeg_oversampling = 0;
  }
  const auto readers = guarded([&]() -> std::unique_ptr<ReadAhead> {
    const Decode decode = options.tiles ? Decode::kCpu : options.decode;
    DeviceReader on_gpu = parts_->backend->device_reader(reading, decode, options.batch_size);
    return files.empty() ? nullptr : std::make_unique<ReadAhead>(files, options, reading, std::move(on_gpu));
  });
  size_t reported = 0;
  std::optional<Batch> started;
  const auto report_started = [&] {
    if (!started) return;
    const auto outcomes = guarded([&] { return finish(*std::move(started), *parts_, options); });
    started.reset();
    for (const FileOutcome& outcome : outcomes) {
      report(reported++, outcome);
    }
  };
  while (readers && readers->next() > 0) {
    // Let the GPU compute the next batch while this one is reported, unless it would wait for the next.
    if (!readers->is_ready()) report_started();
    std::optional<Batch> batch;
    try {
      batch = guarded([&] { return start(*readers, *parts_, options); });
    } catch (const Error&) {
      report_started();  // the batches before a failure
      throw;
    }
    report_started();
    started = std::move(batch);
  }
  report_started();
}

}  // namespace lensbox
