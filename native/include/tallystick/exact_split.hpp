// One element and one block of `exact/1` (NUMERICS 17.4 to 17.8). CUDA's compilers read it too.
#pragma once
#include "tallystick/ts_base.hpp"

namespace tallystick::TS_ISA {

constexpr uint32_t kInfinityBits = 0x7f800000u;
constexpr int kMostDigits = 3;

// Magnitudes are compared as integers: a NaN is above the infinity, which is above every number.
TS_INLINE uint32_t magnitude_bits(float x) { return float_bits(x) & 0x7fffffffu; }

// 2^n, -1022 <= n <= 1023.
TS_INLINE double exact_power(int n) {
  return bits_double(static_cast<uint64_t>(n + 1023) << 52);
}

// 17.4: the least e with mu < 2^e; mu is finite and not 0, given by its bits.
TS_INLINE int exact_exponent(uint32_t mu) {
  if (mu >= 0x00800000u) return static_cast<int>(mu >> 23) - 126;
  return 64 - leading_zeros(mu) - 149;
}

// 17.4: 2^(B-1-e) of a group; 0 where its elements have no integers.
TS_INLINE double exact_factor(uint32_t mu, int width) {
  if (mu == 0 || mu >= kInfinityBits) return 0.0;
  return exact_power(width - 1 - exact_exponent(mu));
}

// 17.4: m(x). The product is exact; the sum with 3·2^51 rounds it to an integer, ties to even.
TS_INLINE double exact_integer(float x, double factor, int width) {
  const double v = static_cast<double>(x) * factor;
  const double m = (v + 0x1.8p52) - 0x1.8p52;
  return width == 8 && m > 127.0 ? 127.0 : m;
}

// The same as a whole number, read from the sum's bits: a conversion would need a decided range.
TS_INLINE int exact_whole(float x, double factor, int width) {
  const double v = static_cast<double>(x) * factor;
  const int m = static_cast<int>(static_cast<uint32_t>(double_bits(v + 0x1.8p52)));
  return factor == 0.0 ? 0 : width == 8 && m > 127 ? 127 : m;
}

// 17.8: the lowest balanced digit of m; m becomes the rest.
TS_INLINE int exact_digit(int& m) {
  const int d = ((m & 255) ^ 128) - 128;
  m = (m - d) / 256;  // exact
  return d;
}

// 17.5: 2^(e + f - 2(B-1)) of one side; the two sides' factors are multiplied. 0 for a group of 0.
TS_INLINE double exact_unit(uint32_t mu, int width) {
  if (mu == 0 || mu >= kInfinityBits) return 0.0;
  return exact_power(exact_exponent(mu) - (width - 1));
}

// 17.5: a block's value. Exact: |sum| <= 2^53, and the units are powers of two. A zero is +0.
TS_INLINE double exact_block(double sum, double unit_a, double unit_b) {
  return sum * (unit_a * unit_b) + 0.0;
}

}  // namespace tallystick::TS_ISA
