// The pass of `letterbox` that combines columns.
#pragma once

#include <cstdint>
#include <memory>

#include "filter_table.h"
#include "sliding_rows.h"
#include "transpose.h"

namespace lensbox {

// Works on a band of kRows rows at a time. Its columns are laid one below the other, kRows bytes each, and
// are then combined as rows are: a weight is for kRows bytes side by side, and nothing is added across a
// vector.
class ColumnFilter {
 public:
  static constexpr int64_t kRows = kTransposedRows;

  // `colours` of the `pixel_bytes` of a pixel are filtered. `filter` must outlive this.
  ColumnFilter(const FilterTable& filter, int32_t pixel_bytes, int32_t colours);

  // A row of the result: `colours` planes of filter.output() bytes, one behind the other, and some more to
  // fill blocks.
  int64_t out_pitch() const { return out_pitch_; }

  // Takes the next `count` pixels, from the left, of each row of the band. Rows are `pitch` bytes apart and
  // can be read to the next multiple of kTransposedColumns bytes.
  void add(const uint8_t* band, int64_t pitch, int64_t count);

  // Writes the kRows rows of the result, after all pixels were added. The next band may follow.
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
