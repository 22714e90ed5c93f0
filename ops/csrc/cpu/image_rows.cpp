#include "image_rows.h"

#include <cstring>

#include "../fit_math.h"
#include "vectors.h"

namespace lensbox {

namespace {

void gray_in_turn(const uint8_t* pixels, int64_t pixel_bytes, int64_t count, uint8_t* out) {
  for (int64_t i = 0; i < count; ++i) {
    const uint8_t* const pixel = pixels + i * pixel_bytes;
    out[i] = luma(pixel[0], pixel[1], pixel[2]);
  }
}

#ifdef __x86_64__
// Four pixels fill 16 bytes. Byte shuffles make the words (red, green) and (green, blue) of each pixel, and
// vpmaddwd multiplies the words and adds pairs. vpmaddwd takes signed words, and the weight of green is too
// large for one. Green is in both pairs, so each pair takes half of its weight.
constexpr int kRedWeight = 19595, kHalfGreenWeight = 38470 / 2, kBlueWeight = 7471;
constexpr int kRedGreenWeights = kHalfGreenWeight << 16 | kRedWeight;
constexpr int kGreenBlueWeights = kBlueWeight << 16 | kHalfGreenWeight;

// The shuffle to (red, green) if byte 0 is the red of the first pixel; index 255 gives 0. With every index
// one higher it is the shuffle to (green, blue).
constexpr uint64_t shuffle_of_two(uint64_t first, uint64_t pixel_bytes) {
  uint64_t bytes = 0xff00ff00ff00ff00;
  for (uint64_t word = 0; word < 4; ++word) {
    bytes |= (first + word / 2 * pixel_bytes + word % 2) << (16 * word);
  }
  return bytes;
}

[[LENSBOX_AVX2, gnu::always_inline]] inline __m128i shuffle_avx2(int first, int pixel_bytes) {
  return _mm_set_epi64x(static_cast<int64_t>(shuffle_of_two(first + 2 * pixel_bytes, pixel_bytes)),
                        static_cast<int64_t>(shuffle_of_two(first, pixel_bytes)));
}

// Return eight gray levels, as 32-bit numbers: four pixels in each half.
[[LENSBOX_AVX2, gnu::always_inline]] inline __m256i luma_avx2(__m256i pixels, __m256i red_green,
                                                              __m256i green_blue) {
  const __m256i a =
      _mm256_madd_epi16(_mm256_shuffle_epi8(pixels, red_green), _mm256_set1_epi32(kRedGreenWeights));
  const __m256i b =
      _mm256_madd_epi16(_mm256_shuffle_epi8(pixels, green_blue), _mm256_set1_epi32(kGreenBlueWeights));
  return _mm256_srli_epi32(_mm256_add_epi32(_mm256_add_epi32(a, b), _mm256_set1_epi32(1 << 15)), 16);
}

[[LENSBOX_AVX2, gnu::always_inline]] inline __m256i load_avx2(const uint8_t* low, const uint8_t* high) {
  return _mm256_loadu2_m128i(reinterpret_cast<const __m128i*>(high), reinterpret_cast<const __m128i*>(low));
}

// The distance of the prefetch, in bytes. Processors prefetch only within a page of memory. Prefetching the
// next page halves the time of images that no cache holds. The prefetch behind the last page has no effect.
constexpr int kAhead = 4096;

// Work in blocks of 32 pixels; the last block overlaps the block before it.
template <int kPixelBytes>
[[LENSBOX_AVX2]] void gray_avx2(const uint8_t* pixels, int64_t count, uint8_t* out) {
  if (count < 32) return gray_in_turn(pixels, kPixelBytes, count, out);
  const __m256i red_green = _mm256_broadcastsi128_si256(shuffle_avx2(0, kPixelBytes));
  const __m256i green_blue = _mm256_broadcastsi128_si256(shuffle_avx2(1, kPixelBytes));
  // A load of 16 bytes at the block's last four pixels would reach beyond it, so load from an earlier byte.
  constexpr int kBefore = kPixelBytes == 3 ? 4 : 1;
  const __m256i last_red_green = _mm256_inserti128_si256(red_green, shuffle_avx2(kBefore, kPixelBytes), 1);
  const __m256i last_green_blue =
      _mm256_inserti128_si256(green_blue, shuffle_avx2(kBefore + 1, kPixelBytes), 1);
  for (int64_t i = 0;; i = i + 64 <= count ? i + 32 : count - 32) {
    const uint8_t* const at = pixels + i * kPixelBytes;
    _mm_prefetch(reinterpret_cast<const char*>(at) + kAhead, _MM_HINT_T0);
    _mm_prefetch(reinterpret_cast<const char*>(at) + kAhead + 64, _MM_HINT_T0);
    __m256i levels[4];
    for (int k = 0; k < 3; ++k) {
      const uint8_t* const eight = at + 8 * k * kPixelBytes;
      levels[k] = luma_avx2(load_avx2(eight, eight + 4 * kPixelBytes), red_green, green_blue);
    }
    levels[3] = luma_avx2(load_avx2(at + 24 * kPixelBytes, at + 28 * kPixelBytes - kBefore), last_red_green,
                          last_green_blue);
    const __m256i bytes = _mm256_packus_epi16(_mm256_packus_epi32(levels[0], levels[1]),
                                              _mm256_packus_epi32(levels[2], levels[3]));
    // Packing works within halves: groups of four pixels come out in the order 0 2 4 6 1 3 5 7.
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + i), _mm256_permutevar8x32_epi32(bytes, order));
    if (i + 32 == count) return;
  }
}
#endif

// Compute the gray levels of `count` pixels that lie `pixel_bytes` (3 or 4) bytes apart: red, green, blue and
// perhaps a fourth byte, which is not read behind the last pixel.
void gray_of_interleaved(const uint8_t* pixels, int64_t pixel_bytes, int64_t count, uint8_t* out) {
#ifdef __x86_64__
  // The loop is bound by memory: vectors twice as wide were no faster.
  if (widest_vectors() != Vectors::kBaseline) {
    return pixel_bytes == 3 ? gray_avx2<3>(pixels, count, out) : gray_avx2<4>(pixels, count, out);
  }
#endif
  pixel_bytes == 3 ? gray_in_turn(pixels, 3, count, out) : gray_in_turn(pixels, 4, count, out);
}

// Compute the gray levels of `count` pixels whose colours are arrays.
void gray_of_planes(const uint8_t* red, const uint8_t* green, const uint8_t* blue, int64_t count,
                    uint8_t* out) {
  with_widest_vectors([=] {
    for (int64_t i = 0; i < count; ++i) {
      out[i] = luma(red[i], green[i], blue[i]);
    }
  });
}

}  // namespace

bool ImageRows::holds_colours(const ImageView& image) {
  return image.channels >= 3 && image.channel_stride == 1 &&
         (image.column_stride == 3 || image.column_stride == 4);
}

ImageRows::ImageRows(const ImageView& image, int32_t canvas_channels) : image_(image) {
  const bool colours = canvas_channels == 3 && image.channels >= 3;
  pixel_bytes_ = colours ? static_cast<int32_t>(image.column_stride) : 1;
  in_memory_ = colours || (image.channels == 1 && image.column_stride == 1);
}

void ImageRows::write(int64_t row, int64_t column, int64_t count, uint8_t* out) const {
  const uint8_t* const at = pixel(row, column);
  const int64_t step = image_.column_stride, colour = image_.channel_stride;
  if (in_memory_) {
    std::memcpy(out, at, bytes(count));
  } else if (image_.channels == 1) {
    for (int64_t i = 0; i < count; ++i) {
      out[i] = at[i * step];
    }
  } else if (holds_colours(image_)) {
    gray_of_interleaved(at, step, count, out);
  } else if (step == 1) {
    gray_of_planes(at, at + colour, at + 2 * colour, count, out);
  } else {
    for (int64_t i = 0; i < count; ++i) {
      const uint8_t* const levels = at + i * step;
      out[i] = luma(levels[0], levels[colour], levels[2 * colour]);
    }
  }
}

}  // namespace lensbox
