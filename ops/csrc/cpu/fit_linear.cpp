// OpenCV's resize(INTER_LINEAR): four pixels for each output, so most rows of a large image are not read.
#include <cstring>
#include <utility>
#include <vector>

#include "filters.h"
#include "image_rows.h"
#include "vectors.h"

namespace lensbox {
namespace {

// The taps of the shown columns, as loops take them.
struct ColumnTaps {
  int32_t pixel_bytes;
  std::vector<int32_t> places;   // bytes from the row's begin to the first pixel, before the second
  std::vector<int32_t> weights;  // the first in the lower half, the second in the upper
};

#ifdef __x86_64__
[[LENSBOX_AVX2, gnu::always_inline]] inline __m128i load16(const void* from) {
  return _mm_loadu_si128(static_cast<const __m128i*>(from));
}

// Mix two pixels of three colours, columns x and x + 4. Return 32 bits for red, green, blue and nothing,
// twice.
template <int kPixelBytes>
[[LENSBOX_AVX2, gnu::always_inline]] inline __m256i mix_two(const uint8_t* row, const int32_t* places,
                                                            const int32_t* weights) {
  constexpr int p = kPixelBytes;
  const __m256i order = _mm256_broadcastsi128_si256(
      _mm_setr_epi8(0, -1, p, -1, 1, -1, p + 1, -1, 2, -1, p + 2, -1, -1, -1, -1, -1));
  const __m256i bytes = _mm256_set_m128i(load16(row + places[4]), load16(row + places[0]));
  const __m256i of_both = _mm256_set_m128i(_mm_set1_epi32(weights[4]), _mm_set1_epi32(weights[0]));
  return _mm256_srai_epi32(_mm256_madd_epi16(_mm256_shuffle_epi8(bytes, order), of_both), 4);
}

// Eight columns at a time, while the 16 bytes from a pixel on lie in the row. Return the number of columns.
template <int kPixelBytes>
[[LENSBOX_AVX2]] int64_t mix_colours_avx2(const uint8_t* row, int64_t row_bytes, const ColumnTaps& taps,
                                          int16_t* out) {
  const int64_t count = std::ssize(taps.places);
  const int32_t *const places = taps.places.data(), *const weights = taps.weights.data();
  // Pairs of words: red of both pixels, green of both, blue of both.
  const __m256i pairs =
      _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 1, 8, 9, 2, 3, 10, 11, 4, 5, 12, 13, -1, -1, -1, -1));
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
  const int32_t *const places = taps.places.data(), *const weights = taps.weights.data();
  int64_t x = 0;
  for (; x + 8 <= count && places[x + 7] + 2 <= row_bytes; x += 8) {
    const auto at = [&](int i) { return two_bytes_at(row + places[x + i]); };
    const __m128i bytes = _mm_setr_epi16(at(0), at(1), at(2), at(3), at(4), at(5), at(6), at(7));
    const __m256i of_both = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(weights + x));
    const __m256i sums = _mm256_srai_epi32(_mm256_madd_epi16(_mm256_cvtepu8_epi16(bytes), of_both), 4);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + x),
                     _mm_packs_epi32(_mm256_castsi256_si128(sums), _mm256_extracti128_si256(sums, 1)));
  }
  return x;
}
#endif

// Mix the columns of a row of the image for each of `colours`; out: int16 [colours, columns].
void mix_columns(const uint8_t* row, int64_t row_bytes, const ColumnTaps& taps, int32_t colours,
                 int16_t* out) {
  const int64_t count = std::ssize(taps.places);
  int64_t x = 0;
#ifdef __x86_64__
  if (widest_vectors() != Vectors::kBaseline) {
    x = colours == 1            ? mix_grays_avx2(row, row_bytes, taps, out)
        : taps.pixel_bytes == 3 ? mix_colours_avx2<3>(row, row_bytes, taps, out)
                                : mix_colours_avx2<4>(row, row_bytes, taps, out);
  }
#endif
  for (; x < count; ++x) {
    const LinearTaps weights = {0, 0, taps.weights[x] & 0xffff, taps.weights[x] >> 16};
    const uint8_t* const first = row + taps.places[x];
    const uint8_t* const second = first + (weights.second_weight == 0 ? 0 : taps.pixel_bytes);
    for (int32_t colour = 0; colour < colours; ++colour) {
      out[colour * count + x] = static_cast<int16_t>(linear_mix(weights, first[colour], second[colour]));
    }
  }
}

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

}  // namespace

void fit_linear(const ImageView& image, const Fit& fit, const VisibleRange& columns, const VisibleRange& rows,
                int32_t colours, int64_t plane_step, int64_t row_step, uint8_t* out) {
  const auto taps_of = [](int64_t index, int32_t input, int64_t whole, bool is_columns) {
    return linear_taps(static_cast<int32_t>(index), input, static_cast<int32_t>(whole), is_columns);
  };
  const ImageRows pixels(image, colours);
  const int64_t row_bytes = pixels.bytes(image.width);
  ColumnTaps across = {pixels.pixel_bytes(), {}, {}};
  for (int64_t x = columns.begin; x < columns.begin + columns.count; ++x) {
    const LinearTaps taps = taps_of(x, image.width, fit.width, /*is_columns=*/true);
    across.places.push_back(taps.first * across.pixel_bytes);
    across.weights.push_back(taps.first_weight | taps.second_weight << 16);
  }
  std::vector<uint8_t> converted(pixels.are_in_memory() ? 0 : row_bytes);
  // The two rows of the image, one of them even, that were mixed last.
  std::vector<int16_t> mixed[2];
  int32_t mixed_rows[2] = {-1, -1};
  const auto mixed_row = [&](int32_t y) {
    std::vector<int16_t>& numbers = mixed[y % 2];
    if (std::exchange(mixed_rows[y % 2], y) != y) {
      numbers.resize(colours * columns.count);
      if (!pixels.are_in_memory()) pixels.write(y, 0, image.width, converted.data());
      mix_columns(pixels.are_in_memory() ? pixels.pixel(y, 0) : converted.data(), row_bytes, across, colours,
                  numbers.data());
    }
    return numbers.data();
  };
  for (int64_t y = 0; y < rows.count; ++y, out += row_step) {
    const LinearTaps taps = taps_of(rows.begin + y, image.height, fit.height, /*is_columns=*/false);
    const int16_t* const first = mixed_row(taps.first);
    const int16_t* const second = taps.second_weight == 0 ? first : mixed_row(taps.second);
    for (int32_t colour = 0; colour < colours; ++colour) {
      mix_rows(taps, first + colour * columns.count, second + colour * columns.count, columns.count,
               out + colour * plane_step);
    }
  }
}

}  // namespace lensbox
