// One pass of `letterbox`: rows of bytes made of the rows above and below them. Columns are combined by the
// same loop, once they have become rows (transpose.h).
#pragma once

#include <cstdint>

#include "filter_table.h"

namespace lensbox {

// Writes rows [begin, end) of the pass, `width` bytes each, to out, out + out_pitch and so on. `rows` is
// where the pass's input row filter.first(begin) lies; rows are `pitch` bytes apart.
void filter_rows(const FilterTable& filter, int32_t begin, int32_t end, const uint8_t* rows, int64_t pitch,
                 int64_t width, uint8_t* out, int64_t out_pitch);

}  // namespace lensbox
