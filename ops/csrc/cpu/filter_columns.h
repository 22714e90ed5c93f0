// The pass of `letterbox` that combines columns.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>

#include "filter_rows.h"
#include "filter_table.h"
#include "image_rows.h"
#include "sliding_rows.h"
#include "transpose.h"

namespace lensbox {

// Works on bands of kRows rows. Each becomes columns that lie one below the other, kRows bytes each, which
// are then combined as rows are: one weight is for kRows bytes side by side, and no sum is across a vector. A
// tile of the band and the columns made of it stay in the nearest cache.
class ColumnFilter {
 public:
  static constexpr int64_t kRows = kTransposedRows;

  // `colours` of the `pixel_bytes` of a pixel are filtered. `filter` must outlive this.
  ColumnFilter(const FilterTable& filter, int32_t pixel_bytes, int32_t colours)
      : filter_(filter),
        pixel_bytes_(pixel_bytes),
        colours_(colours),
        out_columns_(int64_t{colours} * filter.output()),
        tile_(std::make_unique<uint8_t[]>(kRows * kTileBytes)),
        filtered_(std::make_unique<uint8_t[]>(kRows * out_pitch())) {}

  // A row of the result: `colours` planes of filter.output() bytes, one behind the other, and some more to
  // fill blocks.
  int64_t out_pitch() const {
    return (out_columns_ + kTransposedRows - 1) / kTransposedRows * kTransposedRows;
  }

  // Writes kRows rows to `out`. Of those in `rows` that begin at `row` there may be fewer; what becomes of
  // missing ones means nothing.
  void filter_band(const ImageRows& rows, int64_t row, uint8_t* out);

 private:
  static constexpr int64_t kTileBytes = 512;

  // The band's pixels [column, column + count), and how far apart its rows are.
  const uint8_t* tile(const ImageRows& rows, int64_t row, int64_t column, int64_t count, int64_t* pitch);

  const FilterTable& filter_;
  int32_t pixel_bytes_, colours_;
  int64_t out_columns_;
  std::unique_ptr<uint8_t[]> tile_;
  std::unique_ptr<uint8_t[]> filtered_;
};

}  // namespace lensbox
