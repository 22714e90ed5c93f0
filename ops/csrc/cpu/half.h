// float16 and bfloat16 in memory. Conversions round to nearest, ties to even, and overflow to infinity, as
// IEEE 754 asks.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace lensbox {

struct Half {
  uint16_t bits = 0;

  Half() = default;
  explicit Half(float value) {
    const uint32_t word = std::bit_cast<uint32_t>(value), magnitude = word << 1;
    // Add a power of two so large that the addition rounds to the bits that a half keeps.
    uint32_t exponent = magnitude & 0xff000000u;
    if (exponent < 0x71000000u) exponent = 0x71000000u;             // subnormal halves share one
    const float scaled = std::fabs(value) * 0x1p+112f * 0x1p-110f;  // overflows to infinity where a half does
    const auto rounded =
        std::bit_cast<uint32_t>(std::bit_cast<float>((exponent >> 1) + 0x07800000u) + scaled);
    const uint32_t finite = ((rounded >> 13) & 0x7c00u) + (rounded & 0x0fffu);
    bits = static_cast<uint16_t>(((word >> 16) & 0x8000u) | (magnitude > 0xff000000u ? 0x7e00u : finite));
  }
  operator float() const {
    const uint32_t word = uint32_t{bits} << 16, magnitude = word << 1;
    const float normal = std::bit_cast<float>((magnitude >> 4) + (0xe0u << 23)) * 0x1p-112f;
    const float subnormal = std::bit_cast<float>((magnitude >> 17) | (126u << 23)) - 0.5f;
    const uint32_t result = std::bit_cast<uint32_t>(magnitude < (1u << 27) ? subnormal : normal);
    return std::bit_cast<float>((word & 0x80000000u) | result);
  }
};

struct BFloat16 {
  uint16_t bits = 0;

  BFloat16() = default;
  explicit BFloat16(float value) {
    const auto word = std::bit_cast<uint32_t>(value);
    bits = static_cast<uint16_t>(value != value ? 0x7fc0u : (word + 0x7fffu + ((word >> 16) & 1)) >> 16);
  }
  operator float() const { return std::bit_cast<float>(uint32_t{bits} << 16); }
};

}  // namespace lensbox
