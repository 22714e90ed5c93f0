// Checks the division of the CUDA kernels, quotient() in ops/csrc/box_math.h, for all floats at once.
//
// The quotient is corrected once: q = RN(n r), then RN(q + r RN(n - d q)), where r is 1 / d rounded. Before
// its last rounding that is off by less than 2^-22 of the last bit of n / d, so the result is n / d rounded
// unless n / d is as close as that to the middle between two floats. Of mantissas N, D of 24 bits those are
// the pairs with
//     2^s N = M D + k,   M odd and of 25 bits,  |k| <= 8,  s = 24 where N >= D and otherwise 25:
// for each D and k there is at most a handful of M, which an inverse of D modulo 2^s gives. The check goes
// through all of them, with each float to which rcp.approx may have rounded 1 / d (off by at most one unit of
// its last place). Powers of two change nothing, as long as nothing underflows.
//
// Prints the number of divisions tried; exits with 1 at the first wrong one. One reciprocal may be wrong:
// that of 2 - 2^-23, if approximated by 1/2, and so may quotients by it. Two corrections would get them wrong
// too.

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <initializer_list>

namespace {

constexpr int kFarthest = 8;
constexpr float kExemptDivisor = 0x1.fffffep+0f;
constexpr float kExemptApproximation = 0x1p-1f;

// The steps of quotient() after rcp.approx.
float quotient(float n, float d, float approximation) {
  const float reciprocal = std::fma(approximation, std::fma(-d, approximation, 1.0f), approximation);
  const float rough = n * reciprocal;
  return std::fma(std::fma(-d, rough, n), reciprocal, rough);
}

uint32_t inverse_of_odd(uint32_t odd) {
  uint32_t inverse = odd;
  for (int i = 0; i < 4; ++i) {
    inverse *= 2 - odd * inverse;
  }
  return inverse;
}

// Return whether quotient(n, d) is right for every float next to 1 / d.
bool is_right(float n, float d) {
  const double exact = 1.0 / static_cast<double>(d);
  const double last_place = exact < 1.0 ? 0x1p-24 : 0x1p-23;
  const auto nearest = static_cast<float>(exact);
  for (const float approximation : {std::nextafter(nearest, 0.0f), nearest, std::nextafter(nearest, 2.0f)}) {
    if (std::abs(static_cast<double>(approximation) - exact) > last_place * 1.0000001) continue;
    if (d == kExemptDivisor && approximation == kExemptApproximation) continue;
    if (quotient(n, d, approximation) != n / d) {
      std::printf("%a / %a is wrong with %a\n", n, d, approximation);
      return false;
    }
  }
  return true;
}

}  // namespace

int main() {
  constexpr uint32_t kOne = 1u << 23;
  int64_t tried = 0;
  for (uint32_t divisor = kOne; divisor < 2 * kOne; ++divisor) {
    const float d = std::ldexp(static_cast<float>(divisor), -23);
    if (!is_right(1.0f, d)) return 1;
    const int zeros = __builtin_ctz(divisor);
    const uint32_t inverse = inverse_of_odd(divisor >> zeros);
    for (int s = 24; s <= 25; ++s) {
      const int64_t period = int64_t{1} << (s - zeros);
      for (int k = -kFarthest; k <= kFarthest; ++k) {
        if (k % (1 << zeros) != 0) continue;
        // M divisor = -k (mod 2^s)
        const auto least =
            static_cast<int64_t>(static_cast<uint32_t>(-k / (1 << zeros)) * inverse) & (period - 1);
        for (int64_t middle = least; middle < 4 * int64_t{kOne}; middle += period) {
          if (middle < 2 * int64_t{kOne} || middle % 2 == 0) continue;
          const int64_t scaled = middle * divisor + k;
          const int64_t numerator = scaled >> s;
          if (numerator < kOne || numerator >= 2 * int64_t{kOne} || (numerator >= divisor) != (s == 24))
            continue;
          ++tried;
          if (!is_right(std::ldexp(static_cast<float>(numerator), -23), d)) return 1;
        }
      }
    }
  }
  std::printf("%lld\n", static_cast<long long>(tried));
  return tried > 0 ? 0 : 1;
}
