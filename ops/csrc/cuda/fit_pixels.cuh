// Arithmetic on four pixels at once, one byte each in a word.
#pragma once

#include <cstdint>

#include "../fit_math.h"

namespace lensbox {

// Return bytes of two words, chosen by the digits of the selector: 0 to 3 from `a`, 4 to 7 from `b`, lowest
// first.
__device__ __forceinline__ uint32_t pick_bytes(uint32_t a, uint32_t b, uint32_t selector) {
  return __byte_perm(a, b, selector);
}

// Luma is a sum of bytes times 16-bit factors. IDP.2A multiplies either the two low or the two high bytes of
// a word by such factors, and adds both products to a third number. So a pixel takes two instructions at any
// position, even across two words. The gray level is byte 2 of the sum.
constexpr uint32_t kRed = 19595, kGreen = 38470, kBlue = 7471, kHalfLuma = 32768;

__device__ __forceinline__ uint32_t add_low(uint32_t factors, uint32_t bytes, uint32_t sum) {
  return __dp2a_lo(factors, bytes, sum);
}

__device__ __forceinline__ uint32_t add_high(uint32_t factors, uint32_t bytes, uint32_t sum) {
  return __dp2a_hi(factors, bytes, sum);
}

// The factors of two adjacent bytes.
__device__ constexpr uint32_t factors(uint32_t low, uint32_t high) {
  return low | high << 16;
}

__device__ __forceinline__ uint32_t grays(uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
  return pick_bytes(pick_bytes(a, b, 0x0062), pick_bytes(c, d, 0x0062), 0x5410);
}

// Four pixels in three words, RGBR GBRG BRGB in the order of memory.
__device__ __forceinline__ uint32_t gray_of_rgb(const uint32_t (&words)[4]) {
  return grays(add_high(factors(kBlue, 0), words[0], add_low(factors(kRed, kGreen), words[0], kHalfLuma)),
               add_low(factors(kGreen, kBlue), words[1], add_high(factors(0, kRed), words[0], kHalfLuma)),
               add_low(factors(kBlue, 0), words[2], add_high(factors(kRed, kGreen), words[1], kHalfLuma)),
               add_high(factors(kGreen, kBlue), words[2], add_low(factors(0, kRed), words[2], kHalfLuma)));
}

__device__ __forceinline__ void planes_of_rgb(const uint32_t (&words)[4], uint32_t (&planes)[3]) {
  planes[0] = pick_bytes(pick_bytes(words[0], words[1], 0x0630), words[2], 0x5210);
  planes[1] = pick_bytes(pick_bytes(words[0], words[1], 0x0741), words[2], 0x6210);
  planes[2] = pick_bytes(pick_bytes(words[0], words[1], 0x0052), words[2], 0x7410);
}

// Four pixels, one word per pixel.
__device__ __forceinline__ uint32_t gray_of_rgba(const uint32_t (&words)[4]) {
  uint32_t sums[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    sums[i] = add_high(factors(kBlue, 0), words[i], add_low(factors(kRed, kGreen), words[i], kHalfLuma));
  }
  return grays(sums[0], sums[1], sums[2], sums[3]);
}

__device__ __forceinline__ void planes_of_rgba(const uint32_t (&words)[4], uint32_t (&planes)[3]) {
#pragma unroll
  for (int plane = 0; plane < 3; ++plane) {
    const uint32_t selector = plane | (plane + 4) << 4;
    planes[plane] = pick_bytes(pick_bytes(words[0], words[1], selector),
                               pick_bytes(words[2], words[3], selector), 0x5410);
  }
}

// Four pixels, one word per channel.
__device__ __forceinline__ uint32_t gray_of_planes(uint32_t red, uint32_t green, uint32_t blue) {
  const uint32_t low = pick_bytes(red, green, 0x5140), high = pick_bytes(red, green, 0x7362);
  constexpr uint32_t kBoth = factors(kRed, kGreen);
  return grays(add_low(factors(kBlue, 0), blue, add_low(kBoth, low, kHalfLuma)),
               add_low(factors(0, kBlue), blue, add_high(kBoth, low, kHalfLuma)),
               add_high(factors(kBlue, 0), blue, add_low(kBoth, high, kHalfLuma)),
               add_high(factors(0, kBlue), blue, add_high(kBoth, high, kHalfLuma)));
}

// Transpose 4 x 4 bytes: byte j of word i becomes byte i of word j.
__device__ __forceinline__ uint4 transposed(const uint4& rows) {
  const uint32_t xy_low = pick_bytes(rows.x, rows.y, 0x5140), xy_high = pick_bytes(rows.x, rows.y, 0x7362);
  const uint32_t zw_low = pick_bytes(rows.z, rows.w, 0x5140), zw_high = pick_bytes(rows.z, rows.w, 0x7362);
  return make_uint4(pick_bytes(xy_low, zw_low, 0x5410), pick_bytes(xy_low, zw_low, 0x7632),
                    pick_bytes(xy_high, zw_high, 0x5410), pick_bytes(xy_high, zw_high, 0x7632));
}

// Return sum + four pixels, as unsigned bytes, times four signed bytes.
__device__ __forceinline__ uint32_t add_signed(uint32_t pixels, uint32_t weights, uint32_t sum) {
  uint32_t total;
  asm("dp4a.u32.s32 %0, %1, %2, %3;" : "=r"(total) : "r"(pixels), "r"(weights), "r"(sum));
  return total;
}

// The sum of a window, as three sums for the low, middle and high bytes of the weights. `weights` holds these
// bytes for four pixels; the high byte has the sign. Each sum may wrap around; the total does not.
struct WindowSum {
  uint32_t low = kHalfWeight, middle = 0, high = 0;

  __device__ __forceinline__ void add(uint32_t pixels, const uint4& weights) {
    low = __dp4a(pixels, weights.x, low);
    middle = __dp4a(pixels, weights.y, middle);
    high = add_signed(pixels, weights.z, high);
  }

  __device__ __forceinline__ uint32_t byte() const {
    return filtered_byte(static_cast<int32_t>(low + (middle << 8) + (high << 16)));
  }
};

// Four windows with the same weights.
__device__ __forceinline__ void add_to_four(WindowSum (&sums)[4], const uint4& pixels, const uint4& weights) {
  sums[0].add(pixels.x, weights);
  sums[1].add(pixels.y, weights);
  sums[2].add(pixels.z, weights);
  sums[3].add(pixels.w, weights);
}

__device__ __forceinline__ uint32_t bytes_of_four(const WindowSum (&sums)[4]) {
  return sums[0].byte() | sums[1].byte() << 8 | sums[2].byte() << 16 | sums[3].byte() << 24;
}

}  // namespace lensbox
