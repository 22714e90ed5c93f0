#include <c10/core/thread_pool.h>
#include <lensbox/torch/tensors.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <exception>
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

// Run a task in a pool, which runs tasks in the order in which they were added. A pool that is destroyed
// waits for the tasks that have begun, and breaks the futures of the others.
std::future<Outcomes> add(c10::ThreadPool& readers, std::function<Outcomes()> read) {
  const auto task = std::make_shared<std::packaged_task<Outcomes()>>(std::move(read));
  readers.run([task] { (*task)(); });
  return task->get_future();
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

// A batch of files. What goes wrong on its way is thrown by finish(), after the batches before it were
// reported.
class Batch {
 public:
  // Wait for the readers, then decode the files that the readers left to the GPU.
  static Batch of(std::vector<std::future<Outcomes>> groups, const Reading& reading,
                  const GpuJpegDecoder* decoder) {
    Batch batch;
    batch.attempt([&] {
      Outcomes files;
      for (auto& group : groups) {
        std::ranges::move(group.get(), std::back_inserter(files));
      }
      if (decoder != nullptr) decode_coded(files, *decoder, reading);
      for (Outcome& file : files) {
        batch.add(std::move(file));
      }
    });
    return batch;
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
  // Besides the batch that the detector has, one that is read as a whole, and one or more that are being
  // read. The GPU checks one batch while it decodes another.
  const size_t most_ahead = 1 + (threads + batch_size - 1) / batch_size + (decoder != nullptr ? 2 : 0);
  std::deque<std::future<Batch>> coming;
  // Destroyed first: batches wait for readers.
  c10::ThreadPool readers(static_cast<int>(threads));
  size_t begun = 0;
  const auto begin_batches = [&] {
    while (coming.size() < most_ahead && begun < files.size()) {
      Paths rest = files.subspan(begun, std::min(batch_size, files.size() - begun));
      begun += rest.size();
      std::vector<std::future<Outcomes>> groups;
      while (!rest.empty()) {
        const Paths group = rest.first(std::min(group_size(batch_size, threads), rest.size()));
        groups.push_back(add(readers, [group, &reading, decoder] { return read(group, reading, decoder); }));
        rest = rest.subspan(group.size());
      }
      // Photographs that the CPU decodes are ready when they are taken, and need no further thread.
      coming.push_back(std::async(decoder != nullptr ? std::launch::async : std::launch::deferred, Batch::of,
                                  std::move(groups), std::cref(reading), decoder));
    }
  };
  size_t reported = 0;
  const auto report_batch = [&](Batch& batch) {
    const auto outcomes = guarded([&] { return batch.finish(detector, options); });
    for (const FileOutcome& outcome : outcomes) {
      report(reported++, outcome);
    }
  };
  std::optional<Batch> started;
  guarded(begin_batches);
  while (started || !coming.empty()) {
    // Let the GPU compute the next batch while this one is reported, unless it would wait for the next.
    const bool is_ready =
        !coming.empty() && coming.front().wait_for(std::chrono::seconds(0)) == std::future_status::ready;
    if (started && !is_ready) {
      report_batch(*started);
      started.reset();
    }
    if (coming.empty()) continue;
    Batch batch = guarded([&] { return coming.front().get(); });
    coming.pop_front();
    guarded(begin_batches);
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
