#include "filter_columns.h"

namespace lensbox {

const uint8_t* ColumnFilter::tile(const ImageRows& rows, int64_t row, int64_t column, int64_t count,
                                  int64_t* pitch) {
  // Whole blocks are read where they are, unless the last byte of the image may be missing.
  const bool is_last = row + kRows >= rows.height() && column + count >= rows.width();
  if (rows.are_in_memory() && row + kRows <= rows.height() &&
      count * pixel_bytes_ % kTransposedColumns == 0 && !(pixel_bytes_ == 4 && is_last)) {
    *pitch = rows.pitch();
    return rows.pixel(row, column);
  }
  *pitch = kTileBytes;
  for (int64_t i = 0; i < kRows && row + i < rows.height(); ++i) {
    rows.write(row + i, column, count, tile_.get() + i * kTileBytes);
  }
  return tile_.get();
}

void ColumnFilter::filter_band(const ImageRows& rows, int64_t row, uint8_t* out) {
  const int64_t tile_pixels = kTileBytes / kTransposedColumns / pixel_bytes_ * kTransposedColumns;
  const int64_t pitch = kRows * pixel_bytes_;  // of one pixel's columns
  SlidingRows columns(0, filter_.longest() + tile_pixels + kTransposedColumns, pitch);
  int32_t done = 0;
  for (int64_t column = 0; column < filter_.input(); column += tile_pixels) {
    const int64_t count = std::min<int64_t>(tile_pixels, filter_.input() - column);
    int64_t tile_pitch = 0;
    const uint8_t* const band = tile(rows, row, column, count, &tile_pitch);
    const int64_t whole_blocks =
        (count * pixel_bytes_ + kTransposedColumns - 1) / kTransposedColumns * kTransposedColumns;
    uint8_t* const below = columns.below(count + kTransposedColumns, filter_.first(done));
    transpose(band, tile_pitch, kRows, whole_blocks, below, kRows);
    columns.append(count);
    int32_t ready = done;
    while (ready < filter_.output() && filter_.end(ready) <= columns.end()) {
      ++ready;
    }
    if (ready == done) continue;
    for (int32_t colour = 0; colour < colours_; ++colour) {
      filter_rows(filter_, done, ready, columns.row(filter_.first(done)) + colour * kRows, pitch, kRows,
                  filtered_.get() + (int64_t{colour} * filter_.output() + done) * kRows, kRows);
    }
    done = ready;
    if (done == filter_.output()) break;
  }
  transpose(filtered_.get(), kRows, out_pitch(), kRows, out, out_pitch());
}

}  // namespace lensbox
