// Columns of bytes become rows, a block at a time.
#pragma once

#include <cstdint>

namespace lensbox {

constexpr int64_t kTransposedRows = 32, kTransposedColumns = 16;

// out[column][row] = in[row][column], where a row of `in` is in_pitch bytes long and one of `out` out_pitch.
// There are whole blocks of kTransposedRows rows and kTransposedColumns columns.
void transpose(const uint8_t* in, int64_t in_pitch, int64_t rows, int64_t columns, uint8_t* out,
               int64_t out_pitch);

}  // namespace lensbox
