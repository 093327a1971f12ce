// R of NUMERICS 13.2: the nearest point of the grid of b-bit floats (b = 20..32), from binary64.
#pragma once
#include "tallystick/simd_f64.hpp"

namespace tallystick::TS_ISA {

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

  // R(x) once d_store_f32 has made zeros +0; any NaN for a NaN.
  TS_INLINE f64v operator()(f64v x) const {
    if (b == 32) return x;
    const f64v m = d_mul(d_min(d_max(d_and(x, exponent), least), most), scale);
    return d_sub(d_add(x, m), m);
  }
};

// x, but the canonical NaN for any NaN.
TS_INLINE f64v d_canonical(f64v x) {
  return d_select(d_eq(x, x), x, d_set1_bits(0x7ff8000000000000u));
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

}  // namespace tallystick::TS_ISA
