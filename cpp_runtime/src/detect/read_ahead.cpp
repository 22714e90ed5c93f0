#include "detect/read_ahead.h"

#include <utility>

namespace lensbox {

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
      // Another thread may begin the last file meanwhile, so what to do is looked up again.
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

}  // namespace lensbox
