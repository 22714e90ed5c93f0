// Rows of a picture that is never whole in memory: new ones are appended below, and those above are
// forgotten.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>

namespace lensbox {

class SlidingRows {
 public:
  // Row `first` is the first to be appended. Holds `capacity` rows at once.
  SlidingRows(int64_t first, int64_t capacity, int64_t pitch)
      : begin_(first),
        end_(first),
        capacity_(capacity),
        pitch_(pitch),
        bytes_(std::make_unique_for_overwrite<uint8_t[]>(capacity * pitch)) {}

  int64_t end() const { return end_; }
  int64_t pitch() const { return pitch_; }
  const uint8_t* row(int64_t row) const { return bytes_.get() + (row - begin_) * pitch_; }

  // Where row end() goes, with room for `rows` below. Where that is scarce, rows above `needed` are
  // forgotten.
  uint8_t* below(int64_t rows, int64_t needed) {
    if (end_ - begin_ + rows > capacity_) {
      const int64_t kept = std::min(needed, end_);
      std::memmove(bytes_.get(), row(kept), (end_ - kept) * pitch_);
      begin_ = kept;
    }
    return bytes_.get() + (end_ - begin_) * pitch_;
  }

  void append(int64_t rows) { end_ += rows; }

  // Begins anew with row 0.
  void clear() { begin_ = end_ = 0; }

 private:
  int64_t begin_, end_, capacity_, pitch_;
  std::unique_ptr<uint8_t[]> bytes_;
};

}  // namespace lensbox
