// simd_f32.hpp for one lane.
#pragma once
#include "tallystick/ts_base.hpp"

namespace tallystick::TS_ISA {

using f32v = float;
using f32m = bool;
constexpr size_t kF32Lanes = 1;

TS_INLINE f32v v_set1(float x) { return x; }
TS_INLINE f32v v_bits(uint32_t u) { return bits_float(u); }
TS_INLINE f32v v_load(const float* p) { return *p; }
TS_INLINE void v_store(float* p, f32v a) { *p = a; }
// n lanes; the others are +0.
TS_INLINE f32v v_load_n(const float* p, size_t n) { return n ? *p : 0.0f; }
TS_INLINE f32v v_load_n(const float* p, size_t n, f32v fill) { return n ? *p : fill; }
TS_INLINE void v_store_n(float* p, f32v a, size_t n) { if (n) *p = a; }
TS_INLINE float v_lane0(f32v a) { return a; }

TS_INLINE f32v v_sqrt(f32v a) { return sqrt1(a); }
TS_INLINE f32v v_fma(f32v a, f32v b, f32v c) { return fma1(a, b, c); }
TS_INLINE f32v v_and(f32v a, f32v b) { return bits_float(float_bits(a) & float_bits(b)); }
TS_INLINE f32v v_or(f32v a, f32v b) { return bits_float(float_bits(a) | float_bits(b)); }
TS_INLINE f32v v_xor(f32v a, f32v b) { return bits_float(float_bits(a) ^ float_bits(b)); }

TS_INLINE f32m v_lt(f32v a, f32v b) { return a < b; }
TS_INLINE f32m v_le(f32v a, f32v b) { return a <= b; }
TS_INLINE f32m v_gt(f32v a, f32v b) { return a > b; }
TS_INLINE f32m v_ge(f32v a, f32v b) { return a >= b; }
TS_INLINE f32m v_eq(f32v a, f32v b) { return a == b; }
TS_INLINE f32m v_ne(f32v a, f32v b) { return a != b; }
TS_INLINE f32m m_and(f32m a, f32m b) { return a && b; }
TS_INLINE f32m m_or(f32m a, f32m b) { return a || b; }
TS_INLINE f32m m_not(f32m a) { return !a; }
TS_INLINE f32m m_load(const uint8_t* p) { return *p != 0; }
TS_INLINE void m_store(uint8_t* p, f32m m) { *p = m ? 1 : 0; }
TS_INLINE f32m m_first(size_t n) { return n != 0; }
TS_INLINE bool m_any(f32m m) { return m; }
TS_INLINE f32v v_blend(f32m m, f32v a, f32v b) { return m ? a : b; }

TS_INLINE f32v v_max(f32v a, f32v b) {
  if (a != a || b != b) return bits_float(kCanonicalNan);
  if (a == b) return v_and(a, b);
  return a < b ? b : a;
}
TS_INLINE f32v v_min(f32v a, f32v b) {
  if (a != a || b != b) return bits_float(kCanonicalNan);
  if (a == b) return v_or(a, b);
  return b < a ? b : a;
}
TS_INLINE float v_tree(f32v a) { return a; }
TS_INLINE float v_reduce_max(f32v a) { return a; }
TS_INLINE float v_reduce_min(f32v a) { return a; }

}  // namespace tallystick::TS_ISA
