// What the random operators make of words of Philox (NUMERICS 8).
#pragma once
#include "tallystick/elementary.hpp"
#include "tallystick/philox.hpp"

namespace tallystick::TS_ISA {

// 8.6: width = high - low.
TS_INLINE f32v uniform_of(u32v word, f32v low, f32v width) {
  return v_fma(v_mul(u_top24(word), v_set1(0x1p-24f)), width, low);
}

// 8.7.
TS_INLINE f32v normal_of(u32v first, u32v second, f32v mean, f32v std) {
  const f32v unit = v_set1(0x1p-24f), two_pi = v_bits(0x40c90fdbu);
  const f32v u1 = v_mul(v_add(u_top24(first), v_set1(1.0f)), unit);
  const f32v u2 = v_mul(u_top24(second), unit);
  const f32v z = v_mul(v_sqrt(v_mul(v_set1(-2.0f), cr_log(u1))), cr_cos(v_mul(u2, two_pi)));
  return v_fma(z, std, mean);
}

// 8.8. word + 1/2 is rounded once, from its two halves.
TS_INLINE f32v gumbel_of(u32v word) {
  const f32v low = v_add(u_low16(word), v_set1(0.5f));
  const f32v rounded = v_fma(u_top16(word), v_set1(0x1p16f), low);
  const f32v v = v_min(v_mul(rounded, v_set1(0x1p-32f)), v_set1(0x1.fffffep-1f));
  return v_neg(cr_log(v_neg(cr_log1p(v_neg(v)))));
}

}  // namespace tallystick::TS_ISA
