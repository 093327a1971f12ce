// simd_f64.hpp for AArch64 Advanced SIMD: 4 floats, evaluated as two registers of 2 doubles.
#pragma once
#include <arm_neon.h>

#include "tallystick/ts_base.hpp"

namespace tallystick::TS_ISA {

using f32reg = float32x4_t;
constexpr size_t kF32RegLanes = 4;
constexpr size_t kF64Lanes = 2;
struct f64v { float64x2_t v; };
struct f64m { uint64x2_t v; };

TS_INLINE f64v d_of_int(uint64x2_t i) { return {vreinterpretq_f64_u64(i)}; }
TS_INLINE uint64x2_t d_to_int(f64v a) { return vreinterpretq_u64_f64(a.v); }

TS_INLINE f64v d_set1(double x) { return {vdupq_n_f64(x)}; }
TS_INLINE f64v d_set1_bits(uint64_t u) { return d_of_int(vdupq_n_u64(u)); }
TS_INLINE double d_lane0(f64v a) { return vgetq_lane_f64(a.v, 0); }
TS_INLINE f64v d_sqrt(f64v a) { return {vsqrtq_f64(a.v)}; }
TS_INLINE f64v d_fma(f64v a, f64v b, f64v c) { return {vfmaq_f64(c.v, a.v, b.v)}; }
TS_INLINE f64v d_fnma(f64v a, f64v b, f64v c) { return {vfmsq_f64(c.v, a.v, b.v)}; }
TS_INLINE f64v d_min(f64v a, f64v b) { return {vminq_f64(a.v, b.v)}; }
TS_INLINE f64v d_max(f64v a, f64v b) { return {vmaxq_f64(a.v, b.v)}; }
TS_INLINE f64v d_and(f64v a, f64v b) { return d_of_int(vandq_u64(d_to_int(a), d_to_int(b))); }
TS_INLINE f64v d_or(f64v a, f64v b) { return d_of_int(vorrq_u64(d_to_int(a), d_to_int(b))); }
TS_INLINE f64v d_xor(f64v a, f64v b) { return d_of_int(veorq_u64(d_to_int(a), d_to_int(b))); }
TS_INLINE f64v d_iadd(f64v a, f64v b) { return d_of_int(vaddq_u64(d_to_int(a), d_to_int(b))); }
TS_INLINE f64v d_isub(f64v a, f64v b) { return d_of_int(vsubq_u64(d_to_int(a), d_to_int(b))); }
template <int N>
TS_INLINE f64v d_shl(f64v a) { return d_of_int(vshlq_n_u64(d_to_int(a), N)); }
template <int N>
TS_INLINE f64v d_shr(f64v a) { return d_of_int(vshrq_n_u64(d_to_int(a), N)); }
TS_INLINE f64m d_lt(f64v a, f64v b) { return {vcltq_f64(a.v, b.v)}; }
TS_INLINE f64m d_eq(f64v a, f64v b) { return {vceqq_f64(a.v, b.v)}; }
TS_INLINE f64m d_signbit(f64v a) {
  return {vreinterpretq_u64_s64(vshrq_n_s64(vreinterpretq_s64_f64(a.v), 63))};
}
TS_INLINE f64v d_select(f64m m, f64v a, f64v b) { return {vbslq_f64(m.v, a.v, b.v)}; }

// Loads and stores of kF64Lanes elements. Binary32 is widened exactly, and narrowed with one rounding,
// a zero to +0.
TS_INLINE f64v d_load(const double* p) { return {vld1q_f64(p)}; }
TS_INLINE void d_store(double* p, f64v a) { vst1q_f64(p, a.v); }
TS_INLINE f64v d_load_f32(const float* p) { return {vcvt_f64_f32(vld1_f32(p))}; }
TS_INLINE void d_store_f32(float* p, f64v a) {
  vst1_f32(p, vadd_f32(vcvt_f32_f64(a.v), vdup_n_f32(0.0f)));
}
// Lanes whose values rounded to binary32 are unequal or NaN: bit l for lane l.
TS_INLINE unsigned d_differ_f32(f64v a, f64v b) {
  const uint32x2_t m = vceq_f32(vcvt_f32_f64(a.v), vcvt_f32_f64(b.v));
  return ~((vget_lane_u32(m, 0) & 1) | (vget_lane_u32(m, 1) & 2)) & 3;
}

TS_INLINE f32reg r_load(const float* p) { return vld1q_f32(p); }
TS_INLINE void r_store(float* p, f32reg x) { vst1q_f32(p, x); }
TS_INLINE f32reg r_bits(uint32_t u) { return vreinterpretq_f32_u32(vdupq_n_u32(u)); }
TS_INLINE uint32x4_t r_to_int(f32reg a) { return vreinterpretq_u32_f32(a); }
TS_INLINE f32reg r_of_int(uint32x4_t a) { return vreinterpretq_f32_u32(a); }
TS_INLINE f32reg r_and(f32reg a, f32reg b) { return r_of_int(vandq_u32(r_to_int(a), r_to_int(b))); }
TS_INLINE f32reg r_or(f32reg a, f32reg b) { return r_of_int(vorrq_u32(r_to_int(a), r_to_int(b))); }
TS_INLINE f32reg r_xor(f32reg a, f32reg b) { return r_of_int(veorq_u32(r_to_int(a), r_to_int(b))); }
TS_INLINE f32reg r_where_lt(f32reg a, f32reg b, f32reg yes, f32reg no) {
  return vbslq_f32(vcltq_f32(a, b), yes, no);
}
TS_INLINE f32reg r_where_eq(f32reg a, f32reg b, f32reg yes, f32reg no) {
  return vbslq_f32(vceqq_f32(a, b), yes, no);
}
TS_INLINE bool r_any_ge(f32reg a, f32reg b) { return vmaxvq_u32(vcgeq_f32(a, b)) != 0; }

template <class Core>
TS_INLINE f32reg r_map(f32reg x) {
  const f64v lo = Core::run(f64v{vcvt_f64_f32(vget_low_f32(x))});
  const f64v hi = Core::run(f64v{vcvt_high_f64_f32(x)});
  return vcvt_high_f32_f64(vcvt_f32_f64(lo.v), hi.v);
}

}  // namespace tallystick::TS_ISA
