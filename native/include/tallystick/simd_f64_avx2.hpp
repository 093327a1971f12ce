// simd_f64.hpp for AVX2 with FMA: 8 floats, evaluated as two registers of 4 doubles.
#pragma once
#include <immintrin.h>

#include "tallystick/ts_base.hpp"

namespace tallystick::TS_ISA {

using f32reg = __m256;
constexpr size_t kF32RegLanes = 8;
constexpr size_t kF64Lanes = 4;
struct f64v { __m256d v; };
struct f64m { __m256d v; };

TS_INLINE f64v d_of_int(__m256i i) { return {_mm256_castsi256_pd(i)}; }
TS_INLINE __m256i d_to_int(f64v a) { return _mm256_castpd_si256(a.v); }

TS_INLINE f64v d_set1(double x) { return {_mm256_set1_pd(x)}; }
TS_INLINE f64v d_set1_bits(uint64_t u) {
  return d_of_int(_mm256_set1_epi64x(static_cast<long long>(u)));
}
TS_INLINE double d_lane0(f64v a) { return _mm256_cvtsd_f64(a.v); }
TS_INLINE f64v d_sqrt(f64v a) { return {_mm256_sqrt_pd(a.v)}; }
TS_INLINE f64v d_fma(f64v a, f64v b, f64v c) { return {_mm256_fmadd_pd(a.v, b.v, c.v)}; }
TS_INLINE f64v d_fnma(f64v a, f64v b, f64v c) { return {_mm256_fnmadd_pd(a.v, b.v, c.v)}; }
TS_INLINE f64v d_min(f64v a, f64v b) { return {_mm256_min_pd(a.v, b.v)}; }
TS_INLINE f64v d_max(f64v a, f64v b) { return {_mm256_max_pd(a.v, b.v)}; }
TS_INLINE f64v d_and(f64v a, f64v b) { return {_mm256_and_pd(a.v, b.v)}; }
TS_INLINE f64v d_or(f64v a, f64v b) { return {_mm256_or_pd(a.v, b.v)}; }
TS_INLINE f64v d_xor(f64v a, f64v b) { return {_mm256_xor_pd(a.v, b.v)}; }
TS_INLINE f64v d_iadd(f64v a, f64v b) { return d_of_int(_mm256_add_epi64(d_to_int(a), d_to_int(b))); }
TS_INLINE f64v d_isub(f64v a, f64v b) { return d_of_int(_mm256_sub_epi64(d_to_int(a), d_to_int(b))); }
template <int N>
TS_INLINE f64v d_shl(f64v a) { return d_of_int(_mm256_slli_epi64(d_to_int(a), N)); }
template <int N>
TS_INLINE f64v d_shr(f64v a) { return d_of_int(_mm256_srli_epi64(d_to_int(a), N)); }
TS_INLINE f64m d_lt(f64v a, f64v b) { return {_mm256_cmp_pd(a.v, b.v, _CMP_LT_OQ)}; }
TS_INLINE f64m d_eq(f64v a, f64v b) { return {_mm256_cmp_pd(a.v, b.v, _CMP_EQ_OQ)}; }
TS_INLINE f64m d_signbit(f64v a) { return {a.v}; }  // d_select reads the sign bit only
TS_INLINE f64v d_select(f64m m, f64v a, f64v b) { return {_mm256_blendv_pd(b.v, a.v, m.v)}; }

// Loads and stores of kF64Lanes elements. Binary32 is widened exactly, and narrowed with one rounding,
// a zero to +0.
TS_INLINE f64v d_load(const double* p) { return {_mm256_loadu_pd(p)}; }
TS_INLINE void d_store(double* p, f64v a) { _mm256_storeu_pd(p, a.v); }
TS_INLINE f64v d_load_f32(const float* p) { return {_mm256_cvtps_pd(_mm_loadu_ps(p))}; }
TS_INLINE void d_store_f32(float* p, f64v a) {
  _mm_storeu_ps(p, _mm_add_ps(_mm256_cvtpd_ps(a.v), _mm_setzero_ps()));
}
// Lanes whose values rounded to binary32 are unequal or NaN: bit l for lane l.
TS_INLINE unsigned d_differ_f32(f64v a, f64v b) {
  return static_cast<unsigned>(
      _mm_movemask_ps(_mm_cmpneq_ps(_mm256_cvtpd_ps(a.v), _mm256_cvtpd_ps(b.v))));
}

TS_INLINE f32reg r_load(const float* p) { return _mm256_loadu_ps(p); }
TS_INLINE void r_store(float* p, f32reg x) { _mm256_storeu_ps(p, x); }
TS_INLINE f32reg r_bits(uint32_t u) {
  return _mm256_castsi256_ps(_mm256_set1_epi32(static_cast<int>(u)));
}
TS_INLINE f32reg r_and(f32reg a, f32reg b) { return _mm256_and_ps(a, b); }
TS_INLINE f32reg r_or(f32reg a, f32reg b) { return _mm256_or_ps(a, b); }
TS_INLINE f32reg r_xor(f32reg a, f32reg b) { return _mm256_xor_ps(a, b); }
TS_INLINE f32reg r_where_lt(f32reg a, f32reg b, f32reg yes, f32reg no) {
  return _mm256_blendv_ps(no, yes, _mm256_cmp_ps(a, b, _CMP_LT_OQ));
}
TS_INLINE f32reg r_where_eq(f32reg a, f32reg b, f32reg yes, f32reg no) {
  return _mm256_blendv_ps(no, yes, _mm256_cmp_ps(a, b, _CMP_EQ_OQ));
}
TS_INLINE bool r_any_ge(f32reg a, f32reg b) {
  return _mm256_movemask_ps(_mm256_cmp_ps(a, b, _CMP_GE_OQ)) != 0;
}

template <class Core>
TS_INLINE f32reg r_map(f32reg x) {
  const f64v lo = Core::run(f64v{_mm256_cvtps_pd(_mm256_castps256_ps128(x))});
  const f64v hi = Core::run(f64v{_mm256_cvtps_pd(_mm256_extractf128_ps(x, 1))});
  return _mm256_set_m128(_mm256_cvtpd_ps(hi.v), _mm256_cvtpd_ps(lo.v));
}

}  // namespace tallystick::TS_ISA
