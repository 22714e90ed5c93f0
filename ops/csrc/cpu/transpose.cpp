#include "transpose.h"

#include <cstring>

#include "intrinsics.h"
#include "vectors.h"

namespace lensbox {
namespace {

constexpr int64_t kBlockBytes = kTransposedRows * kTransposedColumns;

// Byte k of the first half goes to 2 k, byte k of the second to 2 k + 1: the bits of its index rotate by one
// place. Compilers make vectors of it.
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
// Each vector holds 16 columns of two rows: of row i in its lower half and of row i + 16 in its upper one.
// Interleaving the bytes of rows 2 i and 2 i + 1, then pairs of bytes of what came out, then fours and
// eights, brings the 16 rows of a column together, in both halves at once.
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

}  // namespace

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

}  // namespace lensbox
