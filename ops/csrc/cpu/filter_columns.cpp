#include "filter_columns.h"

#include <algorithm>

#include "filter_rows.h"

namespace lensbox {
namespace {

// What is laid out as columns at once: they stay in the nearest cache until they are combined.
constexpr int64_t kTileBytes = 512;

int64_t rounded_up(int64_t number, int64_t multiple) {
  return (number + multiple - 1) / multiple * multiple;
}

}  // namespace

ColumnFilter::ColumnFilter(const FilterTable& filter, int32_t pixel_bytes, int32_t colours)
    : filter_(filter),
      pixel_bytes_(pixel_bytes),
      colours_(colours),
      tile_(kTileBytes / pixel_bytes / kTransposedColumns * kTransposedColumns),
      out_pitch_(rounded_up(int64_t{colours} * filter.output(), kTransposedRows)),
      columns_(0, filter.longest() + tile_ + kTransposedColumns, kRows * pixel_bytes),
      // What fills blocks is never written.
      filtered_(std::make_unique<uint8_t[]>(kRows * out_pitch_)) {}

void ColumnFilter::add(const uint8_t* band, int64_t pitch, int64_t count) {
  for (int64_t column = 0; column < count && done_ < filter_.output(); column += tile_) {
    const int64_t pixels = std::min(tile_, count - column);
    const int64_t whole_blocks = rounded_up(pixels * pixel_bytes_, kTransposedColumns);
    uint8_t* const below = columns_.below(pixels + kTransposedColumns, filter_.first(done_));
    transpose(band + column * pixel_bytes_, pitch, kRows, whole_blocks, below, kRows);
    columns_.append(pixels);
    const int32_t ready = filter_.ready(done_, columns_.end());
    if (ready == done_) continue;
    for (int32_t colour = 0; colour < colours_; ++colour) {
      uint8_t* const out = filtered_.get() + (int64_t{colour} * filter_.output() + done_) * kRows;
      filter_rows(filter_, done_, ready, columns_.row(filter_.first(done_)) + colour * kRows,
                  columns_.pitch(), kRows, out, kRows);
    }
    done_ = ready;
  }
}

void ColumnFilter::finish(uint8_t* out) {
  transpose(filtered_.get(), kRows, out_pitch_, kRows, out, out_pitch_);
  columns_.clear();
  done_ = 0;
}

}  // namespace lensbox
