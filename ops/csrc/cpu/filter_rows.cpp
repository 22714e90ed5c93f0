#include "../fit_math.h"
#include "filters.h"
#include "vectors.h"

namespace lensbox {
namespace {

// Sums of weight * byte fit int32: the weights of a window add up to 2^22, and those of a window of any
// filter without their signs to less than 2^23. Sums on the way may wrap around; the total does not.

// Loops that compilers vectorise. A block fits into registers.
template <int kWidth>
[[gnu::always_inline]] inline void filter_block(const int32_t* weights, int32_t count, const uint8_t* rows,
                                                int64_t pitch, uint8_t* out) {
  uint32_t sums[kWidth];
  for (int lane = 0; lane < kWidth; ++lane) {
    sums[lane] = kHalfWeight;
  }
  for (int32_t i = 0; i < count; ++i) {
    const auto weight = static_cast<uint32_t>(weights[i]);
    const uint8_t* const row = rows + i * pitch;
    for (int lane = 0; lane < kWidth; ++lane) {
      sums[lane] += weight * row[lane];
    }
  }
  for (int lane = 0; lane < kWidth; ++lane) {
    out[lane] = filtered_byte(static_cast<int32_t>(sums[lane]));
  }
}

struct PlainRow {
  [[gnu::always_inline]] static inline void filter(const int32_t* weights, int32_t count, const uint8_t* rows,
                                                   int64_t pitch, int64_t width, uint8_t* out) {
    int64_t x = 0;
    for (; x + 32 <= width; x += 32) {
      filter_block<32>(weights, count, rows + x, pitch, out + x);
    }
    for (; x < width; ++x) {
      filter_block<1>(weights, count, rows + x, pitch, out + x);
    }
  }
};

#ifdef __x86_64__
// Compute one row of outputs with AVX2. Compilers widen bytes in two steps, with more shuffles than
// additions; here each load widens the bytes at once.
struct Avx2Row {
  // kVectors times 8 columns.
  template <int kVectors>
  [[LENSBOX_AVX2]] static void filter_block(const int32_t* weights, int32_t count, const uint8_t* rows,
                                            int64_t pitch, uint8_t* out) {
    __m256i sums[kVectors];
    for (__m256i& sum : sums) {
      sum = _mm256_set1_epi32(kHalfWeight);
    }
    for (int32_t i = 0; i < count; ++i) {
      const __m256i weight = _mm256_set1_epi32(weights[i]);
      const uint8_t* const row = rows + i * pitch;
      for (int v = 0; v < kVectors; ++v) {
        const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(row + 8 * v));
        sums[v] = _mm256_add_epi32(sums[v], _mm256_mullo_epi32(_mm256_cvtepu8_epi32(bytes), weight));
      }
    }
    for (int v = 0; v < kVectors; ++v) {
      const __m256i levels = _mm256_srai_epi32(sums[v], kWeightBits);
      // The pack instructions saturate like filtered_byte().
      const __m256i words = _mm256_packus_epi32(levels, levels);
      const __m256i bytes = _mm256_packus_epi16(words, words);
      const __m128i both =
          _mm_unpacklo_epi32(_mm256_castsi256_si128(bytes), _mm256_extracti128_si256(bytes, 1));
      _mm_storel_epi64(reinterpret_cast<__m128i*>(out + 8 * v), both);
    }
  }

  [[LENSBOX_AVX2]] static void filter(const int32_t* weights, int32_t count, const uint8_t* rows,
                                      int64_t pitch, int64_t width, uint8_t* out) {
    int64_t x = 0;
    for (; x + 32 <= width; x += 32) {
      filter_block<4>(weights, count, rows + x, pitch, out + x);
    }
    for (; x + 8 <= width; x += 8) {
      filter_block<1>(weights, count, rows + x, pitch, out + x);
    }
    for (; x < width; ++x) {
      lensbox::filter_block<1>(weights, count, rows + x, pitch, out + x);
    }
  }
};

struct Avx512Row {
  // kVectors times 16 columns, of the last as many as `lanes` says.
  template <int kVectors>
  [[LENSBOX_AVX512]] static void filter_block(const int32_t* weights, int32_t count, const uint8_t* rows,
                                              int64_t pitch, uint8_t* out, __mmask16 lanes = 0xffff) {
    __m512i sums[kVectors];
    for (__m512i& sum : sums) {
      sum = _mm512_set1_epi32(kHalfWeight);
    }
    for (int32_t i = 0; i < count; ++i) {
      const __m512i weight = _mm512_set1_epi32(weights[i]);
      const uint8_t* const row = rows + i * pitch;
      for (int v = 0; v < kVectors; ++v) {
        const __m128i bytes = kVectors == 1 ? _mm_maskz_loadu_epi8(lanes, row)
                                            : _mm_loadu_si128(reinterpret_cast<const __m128i*>(row + 16 * v));
        sums[v] = _mm512_add_epi32(sums[v], _mm512_mullo_epi32(_mm512_cvtepu8_epi32(bytes), weight));
      }
    }
    for (int v = 0; v < kVectors; ++v) {
      const __m128i bytes = _mm512_cvtusepi32_epi8(
          _mm512_max_epi32(_mm512_srai_epi32(sums[v], kWeightBits), _mm512_setzero_si512()));
      _mm_mask_storeu_epi8(out + 16 * v, lanes, bytes);
    }
  }

  [[LENSBOX_AVX512]] static void filter(const int32_t* weights, int32_t count, const uint8_t* rows,
                                        int64_t pitch, int64_t width, uint8_t* out) {
    int64_t x = 0;
    for (; x + 64 <= width; x += 64) {
      filter_block<4>(weights, count, rows + x, pitch, out + x);
    }
    for (; x + 32 <= width; x += 32) {
      filter_block<2>(weights, count, rows + x, pitch, out + x);
    }
    for (; x < width; x += 16) {
      const int64_t lanes = width - x < 16 ? width - x : 16;
      filter_block<1>(weights, count, rows + x, pitch, out + x, static_cast<__mmask16>((1 << lanes) - 1));
    }
  }
};
#endif

template <typename Row>
[[gnu::always_inline]] inline void filter_with(const FilterTable& filter, int32_t begin, int32_t end,
                                               const uint8_t* rows, int64_t pitch, int64_t width,
                                               uint8_t* out, int64_t out_pitch) {
  const int32_t first = filter.first(begin);
  for (int32_t i = begin; i < end; ++i) {
    Row::filter(filter.weights(i), filter.count(i), rows + (filter.first(i) - first) * pitch, pitch, width,
                out);
    out += out_pitch;
  }
}

}  // namespace

void filter_rows(const FilterTable& filter, int32_t begin, int32_t end, const uint8_t* rows, int64_t pitch,
                 int64_t width, uint8_t* out, int64_t out_pitch) {
#ifdef __x86_64__
  switch (widest_vectors()) {
    case Vectors::kAvx512:
      return filter_with<Avx512Row>(filter, begin, end, rows, pitch, width, out, out_pitch);
    case Vectors::kAvx2:
      return filter_with<Avx2Row>(filter, begin, end, rows, pitch, width, out, out_pitch);
    case Vectors::kBaseline:
      break;
  }
#endif
  filter_with<PlainRow>(filter, begin, end, rows, pitch, width, out, out_pitch);
}

}  // namespace lensbox
