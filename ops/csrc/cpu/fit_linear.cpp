// OpenCV's resize(INTER_LINEAR): four pixels for each output, so most rows of a large image are not read.
#include "fit_linear.h"

#include <cstring>
#include <utility>
#include <vector>

#include "image_rows.h"
#include "vectors.h"

namespace lensbox {
namespace {

// The taps of the shown columns, as loops take them.
struct ColumnTaps {
  std::vector<int32_t> places;    // bytes from the row's begin to the first pixel
  std::vector<int32_t> seconds;   // the same of the second pixel
  std::vector<uint32_t> weights;  // the first in the lower half, the second in the upper

  ColumnTaps(int32_t input, int64_t whole, const VisibleRange& shown, int32_t pixel_bytes) {
    for (int64_t i = shown.begin; i < shown.begin + shown.count; ++i) {
      const LinearTaps taps =
          linear_taps(static_cast<int32_t>(i), input, static_cast<int32_t>(whole), /*is_columns=*/true);
      places.push_back(taps.first * pixel_bytes);
      seconds.push_back(taps.second * pixel_bytes);
      weights.push_back(static_cast<uint32_t>(taps.first_weight | taps.second_weight << 16));
    }
  }
};

// Mix the columns [begin, count) of a row for each of `colours`; out: int16 [colours, count].
void mix_columns(const uint8_t* row, const ColumnTaps& taps, int64_t begin, int32_t colours, int16_t* out) {
  const int64_t count = std::ssize(taps.places);
  for (int64_t x = begin; x < count; ++x) {
    const LinearTaps weights = {0, 0, static_cast<int32_t>(taps.weights[x] & 0xffff),
                                static_cast<int32_t>(taps.weights[x] >> 16)};
    for (int32_t colour = 0; colour < colours; ++colour) {
      out[colour * count + x] = static_cast<int16_t>(
          linear_mix(weights, row[taps.places[x] + colour], row[taps.seconds[x] + colour]));
    }
  }
}

#ifdef __x86_64__
[[LENSBOX_AVX2, gnu::always_inline]] inline __m128i load16(const void* from) {
  return _mm_loadu_si128(static_cast<const __m128i*>(from));
}

// Mix two pixels of three colours, columns x and x + 4. Return 32 bits for red, green, blue and nothing,
// twice.
template <int kPixelBytes>
[[LENSBOX_AVX2, gnu::always_inline]] inline __m256i mix_two(const uint8_t* row, const int32_t* places,
                                                            const uint32_t* weights) {
  constexpr int p = kPixelBytes;
  const __m256i order = _mm256_setr_epi8(0, -1, p, -1, 1, -1, p + 1, -1, 2, -1, p + 2, -1, -1, -1, -1, -1,  //
                                         0, -1, p, -1, 1, -1, p + 1, -1, 2, -1, p + 2, -1, -1, -1, -1, -1);
  const __m256i bytes =
      _mm256_inserti128_si256(_mm256_castsi128_si256(load16(row + places[0])), load16(row + places[4]), 1);
  const __m256i of_both =
      _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_set1_epi32(static_cast<int32_t>(weights[0]))),
                              _mm_set1_epi32(static_cast<int32_t>(weights[4])), 1);
  return _mm256_srai_epi32(_mm256_madd_epi16(_mm256_shuffle_epi8(bytes, order), of_both), 4);
}

// Eight columns at a time, while the 16 bytes from a pixel on lie in the row. Return the number of columns.
template <int kPixelBytes>
[[LENSBOX_AVX2]] int64_t mix_colours_avx2(const uint8_t* row, int64_t row_bytes, const ColumnTaps& taps,
                                          int16_t* out) {
  const int64_t count = std::ssize(taps.places);
  const int32_t* const places = taps.places.data();
  const uint32_t* const weights = taps.weights.data();
  // Pairs of words: red of both pixels, green of both, blue of both.
  const __m256i pairs = _mm256_setr_epi8(0, 1, 8, 9, 2, 3, 10, 11, 4, 5, 12, 13, -1, -1, -1, -1,  //
                                         0, 1, 8, 9, 2, 3, 10, 11, 4, 5, 12, 13, -1, -1, -1, -1);
  int64_t x = 0;
  for (; x + 8 <= count && places[x + 7] + 16 <= row_bytes; x += 8) {
    const __m256i a = mix_two<kPixelBytes>(row, places + x, weights + x);
    const __m256i b = mix_two<kPixelBytes>(row, places + x + 1, weights + x + 1);
    const __m256i c = mix_two<kPixelBytes>(row, places + x + 2, weights + x + 2);
    const __m256i d = mix_two<kPixelBytes>(row, places + x + 3, weights + x + 3);
    const __m256i ab = _mm256_shuffle_epi8(_mm256_packs_epi32(a, b), pairs);
    const __m256i cd = _mm256_shuffle_epi8(_mm256_packs_epi32(c, d), pairs);
    // Columns 0 to 3 of a colour lie in the lower half, columns 4 to 7 in the upper half.
    const __m256i red_green = _mm256_permute4x64_epi64(_mm256_unpacklo_epi32(ab, cd), 0b11011000);
    const __m256i blue = _mm256_permute4x64_epi64(_mm256_unpackhi_epi32(ab, cd), 0b11011000);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + x), _mm256_castsi256_si128(red_green));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + count + x), _mm256_extracti128_si256(red_green, 1));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + 2 * count + x), _mm256_castsi256_si128(blue));
  }
  return x;
}

[[gnu::always_inline]] inline int16_t two_bytes_at(const uint8_t* from) {
  int16_t both;
  std::memcpy(&both, from, sizeof(both));
  return both;
}

// Eight gray columns at a time.
[[LENSBOX_AVX2]] int64_t mix_grays_avx2(const uint8_t* row, int64_t row_bytes, const ColumnTaps& taps,
                                        int16_t* out) {
  const int64_t count = std::ssize(taps.places);
  const int32_t* const places = taps.places.data();
  int64_t x = 0;
  for (; x + 8 <= count && places[x + 7] + 2 <= row_bytes; x += 8) {
    const auto at = [&](int i) { return two_bytes_at(row + places[x + i]); };
    const __m128i bytes = _mm_setr_epi16(at(0), at(1), at(2), at(3), at(4), at(5), at(6), at(7));
    const __m256i weights = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(taps.weights.data() + x));
    const __m256i sums = _mm256_srai_epi32(_mm256_madd_epi16(_mm256_cvtepu8_epi16(bytes), weights), 4);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + x),
                     _mm_packs_epi32(_mm256_castsi256_si128(sums), _mm256_extracti128_si256(sums, 1)));
  }
  return x;
}
#endif

// Mix two rows of `count` columns.
void mix_rows(const LinearTaps& taps, const int16_t* first, const int16_t* second, int64_t count,
              uint8_t* out) {
  with_widest_vectors([=] {
    const auto first_weight = static_cast<int16_t>(taps.first_weight);
    const auto second_weight = static_cast<int16_t>(taps.second_weight);
    for (int64_t x = 0; x < count; ++x) {
      out[x] = linear_byte(first_weight, second_weight, first[x], second[x]);
    }
  });
}

// The rows of an image with mixed columns. Rows are asked for in order, two adjacent ones at a time.
class MixedRows {
 public:
  MixedRows(const ImageView& image, int32_t colours, int64_t whole, const VisibleRange& shown)
      : rows_(image, colours),
        colours_(colours),
        taps_(image.width, whole, shown, rows_.pixel_bytes()),
        converted_(rows_.are_in_memory() ? 0 : rows_.bytes(rows_.width())) {
    for (Row& row : kept_) {
      row.numbers.resize(colours * shown.count);
    }
  }

  // Return a row of the image, int16 [colours, columns]; it stays until the row after the next is asked for.
  const int16_t* row(int32_t y) {
    Row& kept = kept_[y % 2];
    if (kept.y != y) {
      kept.y = y;
      mix(y, kept.numbers.data());
    }
    return kept.numbers.data();
  }

 private:
  struct Row {
    int32_t y = -1;
    std::vector<int16_t> numbers;
  };

  void mix(int32_t y, int16_t* out) {
    const uint8_t* row = converted_.data();
    if (rows_.are_in_memory()) {
      row = rows_.pixel(y, 0);
    } else {
      rows_.write(y, 0, rows_.width(), converted_.data());
    }
    int64_t done = 0;
#ifdef __x86_64__
    if (widest_vectors() != Vectors::kBaseline) {
      const int64_t bytes = rows_.bytes(rows_.width());
      done = colours_ == 1              ? mix_grays_avx2(row, bytes, taps_, out)
             : rows_.pixel_bytes() == 3 ? mix_colours_avx2<3>(row, bytes, taps_, out)
                                        : mix_colours_avx2<4>(row, bytes, taps_, out);
    }
#endif
    mix_columns(row, taps_, done, colours_, out);
  }

  ImageRows rows_;
  int32_t colours_;
  ColumnTaps taps_;
  std::vector<uint8_t> converted_;
  Row kept_[2];
};

}  // namespace

void fit_linear(const ImageView& image, const Fit& fit, const VisibleRange& columns, const VisibleRange& rows,
                int32_t colours, int64_t plane_step, int64_t row_step, uint8_t* out) {
  MixedRows mixed(image, colours, fit.width, columns);
  for (int64_t y = 0; y < rows.count; ++y, out += row_step) {
    const LinearTaps taps = linear_taps(static_cast<int32_t>(rows.begin + y), image.height,
                                        static_cast<int32_t>(fit.height), /*is_columns=*/false);
    const int16_t* const first = mixed.row(taps.first);
    const int16_t* const second = taps.second_weight == 0 ? first : mixed.row(taps.second);
    for (int32_t colour = 0; colour < colours; ++colour) {
      mix_rows(taps, first + colour * columns.count, second + colour * columns.count, columns.count,
               out + colour * plane_step);
    }
  }
}

}  // namespace lensbox
