#include <lensbox/torch/tensors.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <future>
#include <semaphore>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>

#include "detect/gpu_jpeg.h"
#include "detect/steps.h"
#include "file/errors.h"

namespace lensbox {
namespace {

using Outcome = std::variant<Photo, CodedPhoto, InputError>;

// Reads files in order, in threads beside the caller, up to `most_ahead` files ahead of next().
class ReadAhead {
 public:
  // decoder: of the GPU, or null.
  ReadAhead(std::span<const std::filesystem::path> files, const Reading& reading,
            const GpuJpegDecoder* decoder, size_t most_ahead)
      : files_(files),
        reading_(reading),
        decoder_(decoder),
        room_(static_cast<ptrdiff_t>(most_ahead)),
        places_(most_ahead) {}

  // Wait for the files that are being read.
  ~ReadAhead() {
    for (std::jthread& thread : threads_) {
      thread.request_stop();
    }
    room_.release(static_cast<ptrdiff_t>(threads_.size()));
  }

  ReadAhead(const ReadAhead&) = delete;
  ReadAhead& operator=(const ReadAhead&) = delete;

  void start(size_t threads) {
    for (size_t i = 0; i < threads; ++i) {
      threads_.emplace_back([this](const std::stop_token& stop) { work(stop); });
    }
  }

  // Return the next file's photograph, or the reason if the file cannot be read. Rethrows any other
  // exception, such as a lack of memory. Call this at most once for each file.
  Outcome next() {
    Place& place = places_[taken_++ % places_.size()];
    Outcome outcome = place.future.get();
    place = {};
    room_.release();
    return outcome;
  }

 private:
  struct Place {
    std::promise<Outcome> promise = {};
    std::future<Outcome> future = promise.get_future();
  };

  Outcome read(const std::filesystem::path& file) const {
    if (decoder_ != nullptr) {
      if (auto coded = decoder_->coded(file)) return *std::move(coded);
    }
    return read_photo(file, reading_);
  }

  void work(const std::stop_token& stop) {
    while (true) {
      room_.acquire();
      const size_t index = begun_++;
      if (stop.stop_requested() || index >= files_.size()) return;
      // Own the promise: next() renews the place as soon as the value is set.
      std::promise<Outcome> promise = std::move(places_[index % places_.size()].promise);
      try {
        promise.set_value(read(files_[index]));
      } catch (const InputError& error) {
        promise.set_value(error);
      } catch (...) {
        promise.set_exception(std::current_exception());
      }
    }
  }

  const std::span<const std::filesystem::path> files_;
  const Reading reading_;
  const GpuJpegDecoder* const decoder_;
  std::counting_semaphore<> room_;  // files that may be begun
  std::vector<Place> places_;       // file i has the place i % most_ahead
  std::atomic<size_t> begun_ = 0;
  size_t taken_ = 0;
  std::vector<std::jthread> threads_;  // destroyed first: they use the members above
};

// Decode the files that the readers left to the GPU, and on the CPU those that the GPU refuses.
void decode_coded(std::vector<Outcome>& files, const GpuJpegDecoder& decoder, const Reading& reading) {
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
    try {
      *places[i] = decoded[i] ? *std::move(decoded[i]) : read_photo(coded[i].path, reading);
    } catch (const InputError& error) {
      *places[i] = error;
    }
  }
}

// The files of a batch of photographs, and the unreadable files between them.
class Batch {
 public:
  void add(Outcome read) {
    if (auto* const photo = std::get_if<Photo>(&read)) {
      outcomes_.emplace_back(FileDetections{photo->width, photo->height, {}});
      photos_.push_back(std::move(*photo));
    } else {
      outcomes_.emplace_back(std::get<InputError>(std::move(read)));
    }
  }

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
  const c10::Device device = device_of(*this);
  const auto decoder = options.tiles ? nullptr : guarded([&] {
    return gpu_jpeg_decoder(device, reading, options.decode, options.batch_size);
  });
  // While the device works on one batch, the next may be read as a whole.
  const size_t threads = std::min(options.decode_threads, files.size());
  const size_t batch_size = std::min(options.batch_size, files.size());
  ReadAhead photographs(files, reading, decoder.get(), batch_size + threads);
  guarded([&] { photographs.start(threads); });
  size_t taken = 0;
  const auto read_batch = [&] {
    std::vector<Outcome> read;
    for (size_t photos = 0; photos < batch_size && taken < files.size(); ++taken) {
      read.push_back(photographs.next());
      if (!std::holds_alternative<InputError>(read.back())) ++photos;
    }
    if (decoder) decode_coded(read, *decoder, reading);
    Batch batch;
    for (Outcome& file : read) {
      batch.add(std::move(file));
    }
    return batch;
  };
  // While the detector works on one batch, a thread lets the GPU decode the next. Photographs that the CPU
  // decodes are ready when they are taken, and need no such thread.
  const auto begin_batch = [&] {
    return std::async(decoder ? std::launch::async : std::launch::deferred, read_batch);
  };
  size_t reported = 0;
  auto next = guarded(begin_batch);
  while (reported < files.size()) {
    Batch batch = guarded([&] { return next.get(); });
    next = guarded(begin_batch);
    const auto outcomes = guarded([&] { return batch.detect(*this, options); });
    for (const FileOutcome& outcome : outcomes) {
      report(reported++, outcome);
    }
  }
}

}  // namespace lensbox
