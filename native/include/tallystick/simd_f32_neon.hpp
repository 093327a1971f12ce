// simd_f32.hpp for AArch64 Advanced SIMD: 4 lanes.
#pragma once
#include <arm_neon.h>

#include "tallystick/ts_base.hpp"

namespace tallystick::TS_ISA {

using f32v = float32x4_t;
struct f32m { uint32x4_t v; };
constexpr size_t kF32Lanes = 4;

TS_INLINE f32v v_set1(float x) { return vdupq_n_f32(x); }
TS_INLINE f32v v_bits(uint32_t u) { return vreinterpretq_f32_u32(vdupq_n_u32(u)); }
TS_INLINE f32v v_load(const float* p) { return vld1q_f32(p); }
TS_INLINE void v_store(float* p, f32v a) { vst1q_f32(p, a); }
// n lanes; the others are +0 (or `fill`'s). Memory past n is not touched.
TS_INLINE f32v v_load_n(const float* p, size_t n, f32v fill) {
  float b[4];
  vst1q_f32(b, fill);
  for (size_t i = 0; i < n; ++i) b[i] = p[i];
  return vld1q_f32(b);
}
TS_INLINE f32v v_load_n(const float* p, size_t n) { return v_load_n(p, n, vdupq_n_f32(0.0f)); }
TS_INLINE void v_store_n(float* p, f32v a, size_t n) {
  float b[4];
  vst1q_f32(b, a);
  for (size_t i = 0; i < n; ++i) p[i] = b[i];
}
TS_INLINE float v_lane0(f32v a) { return vgetq_lane_f32(a, 0); }
TS_INLINE uint32x4_t v_u(f32v a) { return vreinterpretq_u32_f32(a); }
TS_INLINE f32v v_f(uint32x4_t a) { return vreinterpretq_f32_u32(a); }

TS_INLINE f32v v_sqrt(f32v a) { return vsqrtq_f32(a); }
TS_INLINE f32v v_fma(f32v a, f32v b, f32v c) { return vfmaq_f32(c, a, b); }
TS_INLINE f32v v_and(f32v a, f32v b) { return v_f(vandq_u32(v_u(a), v_u(b))); }
TS_INLINE f32v v_or(f32v a, f32v b) { return v_f(vorrq_u32(v_u(a), v_u(b))); }
TS_INLINE f32v v_xor(f32v a, f32v b) { return v_f(veorq_u32(v_u(a), v_u(b))); }

TS_INLINE f32m v_lt(f32v a, f32v b) { return {vcltq_f32(a, b)}; }
TS_INLINE f32m v_le(f32v a, f32v b) { return {vcleq_f32(a, b)}; }
TS_INLINE f32m v_gt(f32v a, f32v b) { return {vcgtq_f32(a, b)}; }
TS_INLINE f32m v_ge(f32v a, f32v b) { return {vcgeq_f32(a, b)}; }
TS_INLINE f32m v_eq(f32v a, f32v b) { return {vceqq_f32(a, b)}; }
TS_INLINE f32m v_ne(f32v a, f32v b) { return {vmvnq_u32(vceqq_f32(a, b))}; }
TS_INLINE f32m m_and(f32m a, f32m b) { return {vandq_u32(a.v, b.v)}; }
TS_INLINE f32m m_or(f32m a, f32m b) { return {vorrq_u32(a.v, b.v)}; }
TS_INLINE f32m m_not(f32m a) { return {vmvnq_u32(a.v)}; }
TS_INLINE f32m m_first(size_t n) {
  const uint32_t lane[4] = {0, 1, 2, 3};
  return {vcltq_u32(vld1q_u32(lane), vdupq_n_u32(static_cast<uint32_t>(n)))};
}
TS_INLINE bool m_any(f32m m) { return vmaxvq_u32(m.v) != 0; }
TS_INLINE f32v v_blend(f32m m, f32v a, f32v b) { return vbslq_f32(m.v, a, b); }
TS_INLINE f32m m_load(const uint8_t* p) {
  const uint32_t w[4] = {p[0], p[1], p[2], p[3]};
  const uint32x4_t x = vld1q_u32(w);
  return {vtstq_u32(x, x)};
}
TS_INLINE void m_store(uint8_t* p, f32m m) {
  uint32_t w[4];
  vst1q_u32(w, vshrq_n_u32(m.v, 31));
  for (size_t i = 0; i < 4; ++i) p[i] = static_cast<uint8_t>(w[i]);
}

// FMAX and FMIN are NUMERICS 1.11 except for the NaN's payload.
TS_INLINE f32v v_max(f32v a, f32v b) { return vmaxq_f32(a, b); }
TS_INLINE f32v v_min(f32v a, f32v b) { return vminq_f32(a, b); }
// Lanes added in halves: l + (l+2), then l + (l+1) (NUMERICS 3.1).
TS_INLINE float v_tree(f32v a) {
  const float32x2_t x = vadd_f32(vget_low_f32(a), vget_high_f32(a));
  return vget_lane_f32(x, 0) + vget_lane_f32(x, 1);
}
TS_INLINE float v_reduce_max(f32v a) { return vmaxvq_f32(a); }
TS_INLINE float v_reduce_min(f32v a) { return vminvq_f32(a); }

}  // namespace tallystick::TS_ISA
