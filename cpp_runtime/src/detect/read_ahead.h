#pragma once

#include <lensbox/error.h>
#include <lensbox/torch/tensors.h>

#include <condition_variable>
#include <exception>
#include <filesystem>
#include <mutex>
#include <optional>
#include <stop_token>
#include <thread>
#include <variant>
#include <vector>

namespace lensbox {

// Reads photographs in threads of its own, ahead of whoever takes them in order. At most `most_ahead` are
// there or being read at a time that have not been taken. The destructor waits for those being read.
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
  // Of the files between their being read and taken; that of file i lies at i % most_ahead_.
  std::vector<std::optional<Outcome>> outcomes_;
  size_t begun_ = 0;
  size_t taken_ = 0;
  std::vector<std::jthread> threads_;  // the last, so that they end first
};

}  // namespace lensbox
