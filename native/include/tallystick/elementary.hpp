// Correctly rounded binary32 elementary functions on a native float register (NUMERICS, elementary
// functions). Each returns RN(f(x)); a NaN result is the canonical one.
#pragma once
#include "tallystick/elementary_erf.hpp"
#include "tallystick/elementary_exp.hpp"
#include "tallystick/elementary_log.hpp"
#include "tallystick/elementary_trig.hpp"

namespace tallystick::TS_ISA {

// y, but the canonical NaN where `probe` is NaN.
TS_INLINE f32reg r_canonical(f32reg probe, f32reg y) {
  return r_where_eq(probe, probe, y, r_bits(kCanonicalNan));
}
TS_INLINE f32reg r_sign(f32reg x) { return r_and(x, r_bits(0x80000000u)); }
TS_INLINE f32reg r_abs(f32reg x) { return r_and(x, r_bits(0x7fffffffu)); }

// The result at one input that binary64 leaves on the wrong side of a rounding boundary.
TS_INLINE f32reg r_except(f32reg x, uint32_t at, uint32_t result, f32reg y) {
  return r_where_eq(x, r_bits(at), r_bits(result), y);
}

TS_INLINE f32reg cr_exp(f32reg x) { return r_canonical(x, r_map<ExpCore>(x)); }

TS_INLINE f32reg cr_exp2(f32reg x) {
  f32reg y = r_map<Exp2Core>(x);
  y = r_except(x, 0x3b429d37u, 0x3f804385u, y);
  y = r_except(x, 0xbcf3a937u, 0x3f7ac6b1u, y);
  return r_canonical(x, y);
}

TS_INLINE f32reg cr_expm1(f32reg x) {
  return r_canonical(x, r_or(r_map<Expm1Core>(x), r_sign(x)));
}

TS_INLINE f32reg cr_tanh(f32reg x) {
  return r_canonical(x, r_or(r_map<TanhCore>(r_abs(x)), r_sign(x)));
}

TS_INLINE f32reg cr_sigmoid(f32reg x) {
  return r_canonical(x, r_except(x, 0xba928601u, 0x3effdb5fu, r_map<SigmoidCore>(x)));
}

TS_INLINE f32reg cr_erf(f32reg x) {
  return r_canonical(x, r_or(r_map<ErfCore>(r_abs(x)), r_sign(x)));
}

// The special values of a logarithm whose pole is at `pole`: -inf there, NaN below, +inf at +inf.
TS_INLINE f32reg log_specials(f32reg x, f32reg pole, f32reg y) {
  const f32reg inf = r_bits(0x7f800000u), nan = r_bits(kCanonicalNan);
  y = r_where_lt(x, inf, y, inf);
  y = r_where_eq(x, pole, r_bits(0xff800000u), y);
  y = r_where_lt(x, pole, nan, y);
  return r_canonical(x, y);
}

TS_INLINE f32reg cr_log(f32reg x) {
  f32reg y = r_map<LogCore>(x);
  y = r_except(x, 0x3c413d3au, 0xc08e158fu, y);
  y = r_except(x, 0x41178febu, 0x400fe5e7u, y);
  y = r_except(x, 0x4c5d65a5u, 0x418f034bu, y);
  y = r_except(x, 0x65d890d3u, 0x4254d1f9u, y);
  y = r_except(x, 0x6f31a8ecu, 0x42845a89u, y);
  return log_specials(x, r_bits(0), y);
}

TS_INLINE f32reg cr_log2(f32reg x) { return log_specials(x, r_bits(0), r_map<Log2Core>(x)); }

TS_INLINE f32reg cr_log1p(f32reg x) {
  f32reg y = r_or(r_map<Log1pCore>(x), r_sign(x));
  y = r_except(x, 0x35400003u, 0x353fffffu, y);
  y = r_except(x, 0x3710001bu, 0x370ffff3u, y);
  y = r_except(x, 0x3efd81adu, 0x3ecdeee1u, y);
  y = r_except(x, 0x41078febu, 0x400fe5e7u, y);
  y = r_except(x, 0x65d890d3u, 0x4254d1f9u, y);
  y = r_except(x, 0x6f31a8ecu, 0x42845a89u, y);
  y = r_except(x, 0xb53ffffdu, 0xb5400001u, y);
  y = r_except(x, 0xb70fffe5u, 0xb710000du, y);
  y = r_except(x, 0xbb0ec8c4u, 0xbb0ef0a5u, y);
  return log_specials(x, r_bits(0xbf800000u), y);
}

TS_INLINE f32reg cr_rsqrt(f32reg x) {
  const f32reg y = r_map<RsqrtCore>(x);
  return r_canonical(y, y);
}

TS_INLINE f32reg cr_sin(f32reg x) {
  const f32reg ax = r_abs(x);
  f32reg y = r_map<TrigCore<0>>(ax);
  y = r_except(ax, 0x46199998u, 0xbeb1fa5du, y);
  if (unlikely(r_any_ge(ax, r_bits(0x4d800000u)))) y = trig_big_lanes<0>(ax, y);
  return r_canonical(y, r_xor(y, r_sign(x)));
}

TS_INLINE f32reg cr_cos(f32reg x) {
  const f32reg ax = r_abs(x);
  f32reg y = r_map<TrigCore<1>>(ax);
  if (unlikely(r_any_ge(ax, r_bits(0x4d800000u)))) {
    y = trig_big_lanes<1>(ax, y);
    y = r_except(ax, 0x5f18b878u, 0x3f7f14bbu, y);
    y = r_except(ax, 0x6115cb11u, 0x3f78142fu, y);
  }
  return r_canonical(y, y);
}

}  // namespace tallystick::TS_ISA
