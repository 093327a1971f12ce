// pow(x, y) in binary32, correctly rounded: binary64 with a rounding test, then the exact cases, then
// Ziv's loop. Special values as in IEEE-754 and C (NUMERICS 5.8). No claim over all 2^64 inputs.
#pragma once
#include "tallystick/elementary.hpp"
#include "tallystick/pow_ziv.hpp"

namespace tallystick::TS_ISA {

// 0: not an integer, 1: odd, 2: even. For finite y.
TS_INLINE int integer_parity(float y) {
  const uint32_t bits = float_bits(y) & 0x7fffffffu;
  const int exponent = static_cast<int>(bits >> 23) - 127;
  if (exponent < 0) return bits == 0 ? 2 : 0;
  if (exponent > 23) return 2;
  const uint32_t m = (bits & 0x7fffffu) | 0x800000u;
  const int fraction_bits = 23 - exponent;
  if (m & ((1u << fraction_bits) - 1u)) return 0;
  return (m >> fraction_bits) & 1u ? 1 : 2;
}

struct OddScaled { uint32_t m; int e; };  // |v| = m 2^e, m odd

TS_INLINE OddScaled odd_scaled(float v) {
  const uint32_t bits = float_bits(v) & 0x7fffffffu;
  uint32_t m = bits & 0x7fffffu;
  int e = static_cast<int>(bits >> 23) - 150;
  if (bits >> 23) m |= 0x800000u;
  else e = -149;
  const int zeros = trailing_zeros(m);
  return {m >> zeros, e + zeros};
}

TS_INLINE double pow2_f64(int k) { return bits_double(static_cast<uint64_t>(1023 + k) << 52); }

// x^y where it is a number of at most 25 bits, hence perhaps a rounding boundary: x = m 2^e raised
// to y = n 2^g. m = 1: e y must be an integer. m > 1: y > 0, m a perfect 2^-g th power, m^y small.
TS_OUTLINE bool pow_exact(OddScaled x, bool y_negative, OddScaled y, double* result) {
  if (x.m == 1) {
    int e = x.e, g = y.e;
    for (; g < 0; ++g, e /= 2)
      if (e % 2) return false;
    // The caller has bounded |e y| by 151, so this loop ends within 8 steps unless e is 0.
    int64_t power = static_cast<int64_t>(e) * y.m;
    for (; g > 0 && power != 0; --g) power *= 2;
    *result = pow2_f64(static_cast<int>(y_negative ? -power : power));
    return true;
  }
  if (y_negative || y.e > 3) return false;
  for (; y.e < 0; ++y.e) {
    uint32_t root = 1;
    while (root * root < x.m) root += 2;  // m odd and below 2^24: at most 2^11 steps
    if (root * root != x.m || x.e % 2) return false;
    x.m = root;
    x.e /= 2;
  }
  const uint64_t n = static_cast<uint64_t>(y.m) << y.e;
  if (n > 15) return false;  // 3^16 has 26 bits
  uint64_t p = 1;
  for (uint64_t i = 0; i < n; ++i) {
    p *= x.m;
    if (p >> 25) return false;
  }
  *result = static_cast<double>(p) * pow2_f64(x.e * static_cast<int>(n));
  return true;
}

TS_OUTLINE float pow_hard(float ax, float y) {
  const OddScaled xs = odd_scaled(ax), ys = odd_scaled(y);
  const bool y_negative = y < 0;
  double exact;
  if (pow_exact(xs, y_negative, ys, &exact)) return static_cast<float>(exact);
  float result;
  // The rest is no rounding boundary, so some precision decides; 2^-130 has always sufficed.
  if (!pow_fixed<4>(xs.m, xs.e, y_negative, ys.m, ys.e, &result) &&
      !pow_fixed<8>(xs.m, xs.e, y_negative, ys.m, ys.e, &result))
    pow_fixed<16>(xs.m, xs.e, y_negative, ys.m, ys.e, &result);
  return result;
}

// ax^y, ax positive, finite and not 1, y finite and not 0.
TS_OUTLINE float pow_positive(float ax, float y) {
  const double l = d_lane0(Log2Core::run(d_set1(static_cast<double>(ax))));
  const double t = static_cast<double>(y) * l;
  if (t > 129.0) return bits_float(0x7f800000u);
  if (t < -151.0) return 0.0f;
  const double v = d_lane0(Exp2Core::run(d_set1(t)));
  // l is good to 2^-51 of itself and |t| <= 151, so v to 2^-43 of itself; twice that is tested.
  const double slack = v * 0x1p-42;
  const float lo = static_cast<float>(v - slack), hi = static_cast<float>(v + slack);
  return lo == hi ? lo : pow_hard(ax, y);
}

TS_INLINE float cr_pow(float x, float y) {
  const uint32_t xb = float_bits(x), yb = float_bits(y);
  const uint32_t axb = xb & 0x7fffffffu, ayb = yb & 0x7fffffffu;
  const uint32_t inf = 0x7f800000u, one = 0x3f800000u;
  if (ayb == 0 || xb == one) return 1.0f;
  if (axb > inf || ayb > inf) return bits_float(kCanonicalNan);
  if (ayb == inf) {
    if (axb == one) return 1.0f;
    return (axb > one) == (yb == inf) ? bits_float(inf) : 0.0f;
  }
  const int parity = integer_parity(y);
  const uint32_t sign = parity == 1 ? xb & 0x80000000u : 0u;
  if (axb == 0 || axb == inf) return bits_float(sign | ((axb == 0) == (y > 0) ? 0u : inf));
  if (xb != axb && parity == 0) return bits_float(kCanonicalNan);
  const float magnitude = axb == one ? 1.0f : pow_positive(bits_float(axb), y);
  return bits_float(float_bits(magnitude) | sign);
}

}  // namespace tallystick::TS_ISA
