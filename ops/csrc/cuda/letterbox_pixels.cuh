// Bytes of pixels, four to a word, and what can be done to four of them at once.
#pragma once

#include <cstdint>

#include "../triangle_filter.h"

namespace lensbox {

// Bytes of two words, chosen by the digits of the selector: 0 to 3 from `a`, 4 to 7 from `b`, lowest first.
__device__ __forceinline__ uint32_t pick_bytes(uint32_t a, uint32_t b, uint32_t selector) {
  return __byte_perm(a, b, selector);
}

// luma() of the three lowest bytes, in byte 2 of the result. Its 16-bit factors are taken as high and low
// bytes, so that one instruction multiplies and adds a whole pixel.
__device__ __forceinline__ uint32_t shifted_luma(uint32_t pixel) {
  const uint32_t high = __dp4a(pixel, 76u | 150u << 8 | 29u << 16, 128u);
  return __dp4a(pixel, 139u | 70u << 8 | 47u << 16, high << 8);
}
static_assert(76 * 256 + 139 == 19595 && 150 * 256 + 70 == 38470 && 29 * 256 + 47 == 7471);

__device__ __forceinline__ uint32_t luma_of_four(uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
  const uint32_t ab = pick_bytes(shifted_luma(a), shifted_luma(b), 0x0062);
  const uint32_t cd = pick_bytes(shifted_luma(c), shifted_luma(d), 0x0062);
  return pick_bytes(ab, cd, 0x5410);
}

// Four pixels of RGB RGBR GBRG RGB in memory's order: three words.
__device__ __forceinline__ uint32_t gray_of_rgb(const uint32_t (&words)[4]) {
  return luma_of_four(words[0], __funnelshift_r(words[0], words[1], 24),
                      __funnelshift_r(words[1], words[2], 16), words[2] >> 8);
}

__device__ __forceinline__ void planes_of_rgb(const uint32_t (&words)[4], uint32_t (&planes)[3]) {
  planes[0] = pick_bytes(pick_bytes(words[0], words[1], 0x0630), words[2], 0x5210);
  planes[1] = pick_bytes(pick_bytes(words[0], words[1], 0x0741), words[2], 0x6210);
  planes[2] = pick_bytes(pick_bytes(words[0], words[1], 0x0052), words[2], 0x7410);
}

// Four pixels of RGBA: four words.
__device__ __forceinline__ uint32_t gray_of_rgba(const uint32_t (&words)[4]) {
  return luma_of_four(words[0], words[1], words[2], words[3]);
}

__device__ __forceinline__ void planes_of_rgba(const uint32_t (&words)[4], uint32_t (&planes)[3]) {
#pragma unroll
  for (int plane = 0; plane < 3; ++plane) {
    const uint32_t selector = plane | (plane + 4) << 4;
    planes[plane] = pick_bytes(pick_bytes(words[0], words[1], selector),
                               pick_bytes(words[2], words[3], selector), 0x5410);
  }
}

// Four pixels, each channel a word.
__device__ __forceinline__ uint32_t gray_of_planes(uint32_t red, uint32_t green, uint32_t blue) {
  const uint32_t low = pick_bytes(red, green, 0x5140);
  const uint32_t high = pick_bytes(red, green, 0x7362);
  return luma_of_four(pick_bytes(low, blue, 0x0410), pick_bytes(low, blue, 0x0532),
                      pick_bytes(high, blue, 0x0610), pick_bytes(high, blue, 0x0732));
}

// Byte j of word i becomes byte i of word j.
__device__ __forceinline__ uint4 transposed(const uint4& rows) {
  const uint32_t xy_low = pick_bytes(rows.x, rows.y, 0x5140), xy_high = pick_bytes(rows.x, rows.y, 0x7362);
  const uint32_t zw_low = pick_bytes(rows.z, rows.w, 0x5140), zw_high = pick_bytes(rows.z, rows.w, 0x7362);
  return make_uint4(pick_bytes(xy_low, zw_low, 0x5410), pick_bytes(xy_low, zw_low, 0x7632),
                    pick_bytes(xy_high, zw_high, 0x5410), pick_bytes(xy_high, zw_high, 0x7632));
}

// The sum of a window, as three sums by the bytes of the weights: `weights` holds the low, middle and high
// ones of four pixels. Each sum may wrap around; the whole does not.
struct WindowSum {
  uint32_t low = kHalfWeight, middle = 0, high = 0;

  __device__ __forceinline__ void add(uint32_t pixels, const uint4& weights) {
    low = __dp4a(pixels, weights.x, low);
    middle = __dp4a(pixels, weights.y, middle);
    high = __dp4a(pixels, weights.z, high);
  }

  __device__ __forceinline__ uint32_t byte() const {
    return filtered_byte(static_cast<int32_t>(low + (middle << 8) + (high << 16)));
  }
};

}  // namespace lensbox
