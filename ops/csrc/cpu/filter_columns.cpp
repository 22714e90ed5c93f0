#include <algorithm>
#include <cstring>

#include "../fit_math.h"
#include "filters.h"
#include "vectors.h"

namespace lensbox {

namespace {

// Fill in the weights of windows. A constant kFilter lets compilers vectorise the loops.
template <Filter kFilter>
[[gnu::always_inline]] inline void write_weights(const FilterWindow* windows, int32_t count,
                                                 const int64_t* begins, double* heights, int32_t* weights) {
  for (int32_t i = 0; i < count; ++i) {
    const FilterWindow window = windows[i];
    for (int32_t j = 0; j < window.count; ++j) {
      heights[j] = filter_height(kFilter, window, j);
    }
    double area = 0.0;  // added in the order of filter_area()
    for (int32_t j = 0; j < window.count; ++j) {
      area += heights[j];
    }
    for (int32_t j = 0; j < window.count; ++j) {
      weights[begins[i] + j] = fixed_weight(heights[j], area);
    }
  }
}

}  // namespace

FilterTable::FilterTable(Filter filter, int32_t input, int32_t whole, int32_t begin, int32_t count)
    : firsts_(count), begins_(count + 1) {
  std::vector<FilterWindow> windows(count);
  for (int32_t i = 0; i < count; ++i) {
    windows[i] = filter_window(filter, begin + i, input, whole);
    if (i == 0) origin_ = windows[0].first;
    firsts_[i] = windows[i].first - origin_;
    begins_[i + 1] = begins_[i] + windows[i].count;
    longest_ = std::max(longest_, windows[i].count);
  }
  weights_.resize(begins_[count]);
  std::vector<double> heights(longest_);
  with_widest_vectors([=, windows = windows.data(), begins = begins_.data(), heights = heights.data(),
                       weights = weights_.data()] {
    switch (filter) {
      case Filter::kBilinear:
        return write_weights<Filter::kBilinear>(windows, count, begins, heights, weights);
      case Filter::kBicubic:
        return write_weights<Filter::kBicubic>(windows, count, begins, heights, weights);
      case Filter::kLanczos:
        return write_weights<Filter::kLanczos>(windows, count, begins, heights, weights);
      case Filter::kHamming:
        return write_weights<Filter::kHamming>(windows, count, begins, heights, weights);
      default:
        return write_weights<Filter::kBox>(windows, count, begins, heights, weights);
    }
  });
}

namespace {

constexpr int64_t kTransposedRows = ColumnFilter::kRows, kTransposedColumns = ColumnFilter::kColumns;
constexpr int64_t kBlockBytes = kTransposedRows * kTransposedColumns;

// Interleave two halves: byte k of the first half goes to 2 k, byte k of the second half to 2 k + 1. The bits
// of a byte's index rotate by one place. Compilers vectorise the loop.
void shuffle(const uint8_t* in, uint8_t* out) {
  for (int64_t k = 0; k < kBlockBytes / 2; ++k) {
    out[2 * k] = in[k];
    out[2 * k + 1] = in[kBlockBytes / 2 + k];
  }
}

// A byte's index is 16 row + column. Five rotations later, which is 32 = 2^5 rows, it is 32 column + row.
void transpose_block(const uint8_t* in, int64_t in_pitch, uint8_t* out, int64_t out_pitch) {
  static_assert(kTransposedRows == 32 && kTransposedColumns == 16);
  uint8_t a[kBlockBytes], b[kBlockBytes];
  for (int64_t row = 0; row < kTransposedRows; ++row) {
    std::memcpy(a + row * kTransposedColumns, in + row * in_pitch, kTransposedColumns);
  }
  shuffle(a, b);
  shuffle(b, a);
  shuffle(a, b);
  shuffle(b, a);
  shuffle(a, b);
  for (int64_t column = 0; column < kTransposedColumns; ++column) {
    std::memcpy(out + column * out_pitch, b + column * kTransposedRows, kTransposedRows);
  }
}

#ifdef __x86_64__
// Each vector holds 16 columns of two rows: row i in the lower half, row i + 16 in the upper half. Four
// rounds interleave neighbouring vectors: bytes, then pairs, fours and eights of bytes. After them a vector's
// half holds 16 rows of one column.
[[LENSBOX_AVX2]] void transpose_block_avx2(const uint8_t* in, int64_t in_pitch, uint8_t* out,
                                           int64_t out_pitch) {
  __m256i a[16], b[16];
  for (int i = 0; i < 16; ++i) {
    a[i] = _mm256_loadu2_m128i(reinterpret_cast<const __m128i*>(in + (i + 16) * in_pitch),
                               reinterpret_cast<const __m128i*>(in + i * in_pitch));
  }
  for (int i = 0; i < 8; ++i) {  // b[2 i + h]: columns 8 h.. of rows 2 i..
    b[2 * i] = _mm256_unpacklo_epi8(a[2 * i], a[2 * i + 1]);
    b[2 * i + 1] = _mm256_unpackhi_epi8(a[2 * i], a[2 * i + 1]);
  }
  for (int i = 0; i < 4; ++i) {  // a[4 i + h]: columns 4 h.. of rows 4 i..
    for (int h = 0; h < 2; ++h) {
      a[4 * i + 2 * h] = _mm256_unpacklo_epi16(b[4 * i + h], b[4 * i + 2 + h]);
      a[4 * i + 2 * h + 1] = _mm256_unpackhi_epi16(b[4 * i + h], b[4 * i + 2 + h]);
    }
  }
  for (int i = 0; i < 2; ++i) {  // b[8 i + h]: columns 2 h.. of rows 8 i..
    for (int h = 0; h < 4; ++h) {
      b[8 * i + 2 * h] = _mm256_unpacklo_epi32(a[8 * i + h], a[8 * i + 4 + h]);
      b[8 * i + 2 * h + 1] = _mm256_unpackhi_epi32(a[8 * i + h], a[8 * i + 4 + h]);
    }
  }
  for (int h = 0; h < 8; ++h) {
    const __m256i even = _mm256_unpacklo_epi64(b[h], b[8 + h]), odd = _mm256_unpackhi_epi64(b[h], b[8 + h]);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + 2 * h * out_pitch), even);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + (2 * h + 1) * out_pitch), odd);
  }
}
#endif

// Transpose: out[column][row] = in[row][column]. in_pitch and out_pitch are the bytes of a row of `in` and of
// `out`. `in` consists of whole blocks of kTransposedRows rows and kTransposedColumns columns.
void transpose(const uint8_t* in, int64_t in_pitch, int64_t rows, int64_t columns, uint8_t* out,
               int64_t out_pitch) {
  auto* block = transpose_block;
#ifdef __x86_64__
  if (widest_vectors() != Vectors::kBaseline) block = transpose_block_avx2;
#endif
  for (int64_t row = 0; row < rows; row += kTransposedRows) {
    for (int64_t column = 0; column < columns; column += kTransposedColumns) {
      block(in + row * in_pitch + column, in_pitch, out + column * out_pitch + row, out_pitch);
    }
  }
}

// The number of bytes transposed at once; they stay in the L1 cache until they are combined.
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
      // Clear the memory once, because the padding of blocks is never written.
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
