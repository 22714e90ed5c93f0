// The two passes of `fit`, and their weights. One pass combines rows with the rows above and below. The
// other pass combines columns, after a transposition that makes them rows.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "../fit_math.h"

namespace lensbox {

class FilterTable {
 public:
  // Compute the outputs [begin, begin + count) of the filter that turns `input` pixels into `whole`.
  FilterTable(Filter filter, int32_t input, int32_t whole, int32_t begin, int32_t count);

  int32_t output() const { return static_cast<int32_t>(firsts_.size()); }

  // The first input pixel of all outputs, from which the others are counted, and the number of pixels.
  int32_t origin() const { return origin_; }
  int32_t input() const { return end(output() - 1); }

  // Output pixel i is the sum of the inputs [first(i), end(i)) times weights(i). Neither bound ever
  // decreases.
  int32_t first(int32_t i) const { return firsts_[i]; }
  int32_t end(int32_t i) const { return firsts_[i] + count(i); }
  int32_t count(int32_t i) const { return static_cast<int32_t>(begins_[i + 1] - begins_[i]); }
  const int32_t* weights(int32_t i) const { return weights_.data() + begins_[i]; }

  // Return the end of the outputs that need only inputs before `end`. The outputs before `begin` are known to
  // need no more.
  int32_t ready(int32_t begin, int64_t end) const {
    while (begin < output() && this->end(begin) <= end) {
      ++begin;
    }
    return begin;
  }

  // The largest number of inputs of one output pixel.
  int32_t longest() const { return longest_; }

 private:
  int32_t origin_ = 0, longest_ = 0;
  std::vector<int32_t> firsts_;
  std::vector<int64_t> begins_;  // of the windows' weights, and where the last ends
  std::vector<int32_t> weights_;
};

// Write rows [begin, end) of the pass, `width` bytes each, to out, out + out_pitch and so on. `rows` is
// the address of input row filter.first(begin); rows are `pitch` bytes apart.
void filter_rows(const FilterTable& filter, int32_t begin, int32_t end, const uint8_t* rows, int64_t pitch,
                 int64_t width, uint8_t* out, int64_t out_pitch);

// Write the shown part of an image, scaled by OpenCV's INTER_LINEAR, to `colours` planes (1, or 3 for colours
// that are interleaved in memory). out: the first plane's first pixel of the image; plane_step and row_step
// are bytes between planes and rows.
void fit_linear(const ImageView& image, const Fit& fit, const VisibleRange& columns, const VisibleRange& rows,
                int32_t colours, int64_t plane_step, int64_t row_step, uint8_t* out);

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

  // Return the memory of row end(), with room for `rows` rows. If there is too little room, drop the rows
  // above `needed`.
  uint8_t* below(int64_t rows, int64_t needed) {
    if (end_ - begin_ + rows > capacity_) {
      const int64_t kept = std::min(needed, end_);
      std::memmove(bytes_.get(), row(kept), (end_ - kept) * pitch_);
      begin_ = kept;
    }
    return bytes_.get() + (end_ - begin_) * pitch_;
  }

  void append(int64_t rows) { end_ += rows; }

  // Start again with row 0.
  void clear() { begin_ = end_ = 0; }

 private:
  int64_t begin_, end_, capacity_, pitch_;
  std::unique_ptr<uint8_t[]> bytes_;
};

// Filters columns, one band of kRows rows at a time. The band is transposed, so each column becomes a row of
// kRows bytes. The columns are then combined like rows: one weight applies to kRows adjacent bytes, and no
// sum crosses the lanes of a vector.
class ColumnFilter {
 public:
  static constexpr int64_t kRows = 32, kColumns = 16;  // of a block that is transposed

  // `colours` of the `pixel_bytes` of a pixel are filtered. `filter` must outlive this.
  ColumnFilter(const FilterTable& filter, int32_t pixel_bytes, int32_t colours);

  // A row of the result: `colours` planes of filter.output() bytes, one behind the other, and some more to
  // fill blocks.
  int64_t out_pitch() const { return out_pitch_; }

  // Take the next `count` pixels, from the left, of each row of the band. Rows are `pitch` bytes apart and
  // can be read to the next multiple of kColumns bytes.
  void add(const uint8_t* band, int64_t pitch, int64_t count);

  // Write the kRows rows of the result, after all pixels were added. The next band may follow.
  void finish(uint8_t* out);

 private:
  const FilterTable& filter_;
  int32_t pixel_bytes_, colours_;
  int32_t done_ = 0;  // columns of the result
  int64_t tile_, out_pitch_;
  SlidingRows columns_;                  // of one pixel each
  std::unique_ptr<uint8_t[]> filtered_;  // columns of the result
};

}  // namespace lensbox
