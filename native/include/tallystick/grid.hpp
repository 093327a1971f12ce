// R of NUMERICS 13.2: the nearest point of the grid of b-bit floats (b = 20..32), from binary64.
#pragma once
#include "tallystick/simd_f64.hpp"

namespace tallystick {
namespace TS_ISA {

// Adding and subtracting m = 1.5·2^s·2^k, k being x's exponent, rounds x to the ulp of m, ties to
// even, in one rounding: s = 61 - b makes that ulp the grid's step. Below 2^-126 the step stays.
struct GridRounder {
  int b;
  f64v scale, least, most, exponent;

  explicit TS_INLINE GridRounder(int bits)
      : b(bits),
        scale(d_set1(1.5 * static_cast<double>(uint64_t(1) << (61 - bits)))),
        least(d_set1(0x1p-126)),
        most(d_set1(0x1p200)),  // keeps m finite: an infinity goes through unchanged
        exponent(d_set1_bits(0x7ff0000000000000u)) {}

  // R(x) as binary64, but -0 where it is a zero below 0, and any NaN for a NaN.
  TS_INLINE f64v operator()(f64v x) const {
    if (b == 32) return d_round_f32(x);
    const f64v m = d_mul(d_min(d_max(d_and(x, exponent), least), most), scale);
    return d_round_f32(d_sub(d_add(x, m), m));
  }
};

// What R's result is stored as: canonical NaN, +0 for every zero.
TS_INLINE f64v grid_stored(f64v r) {
  const f64v v = d_select(d_eq(r, r), r, d_set1_bits(0x7ff8000000000000u));
  return d_add(v, d_set1(0.0));
}

// R of one number.
TS_INLINE float grid1(double x, int b) {
  if (x != x) return bits_float(kCanonicalNan);
  if (b < 32) {
    const double e = bits_double(double_bits(x) & 0x7ff0000000000000u);
    const double m = ts_min(ts_max(e, 0x1p-126), 0x1p200) *
                     (1.5 * static_cast<double>(uint64_t(1) << (61 - b)));
    x = (x + m) - m;
  }
  return static_cast<float>(x) + 0.0f;
}

}  // namespace TS_ISA
}  // namespace tallystick
