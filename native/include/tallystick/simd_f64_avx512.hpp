// simd_f64.hpp for AVX-512 (F, DQ, BW, VL): 16 floats, evaluated as two registers of 8 doubles.
#pragma once
// gcc 12 reads its own _mm512_undefined_pd() as a use of an uninitialised variable.
#pragma GCC diagnostic push
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif
#include <immintrin.h>
#pragma GCC diagnostic pop

#include "tallystick/ts_base.hpp"

namespace tallystick::TS_ISA {

using f32reg = __m512;
constexpr size_t kF32RegLanes = 16;
constexpr size_t kF64Lanes = 8;
struct f64v { __m512d v; };
struct f64m { __mmask8 v; };

TS_INLINE f64v d_of_int(__m512i i) { return {_mm512_castsi512_pd(i)}; }
TS_INLINE __m512i d_to_int(f64v a) { return _mm512_castpd_si512(a.v); }

TS_INLINE f64v d_set1(double x) { return {_mm512_set1_pd(x)}; }
TS_INLINE f64v d_set1_bits(uint64_t u) {
  return d_of_int(_mm512_set1_epi64(static_cast<long long>(u)));
}
TS_INLINE double d_lane0(f64v a) { return _mm512_cvtsd_f64(a.v); }
TS_INLINE f64v d_sqrt(f64v a) { return {_mm512_sqrt_pd(a.v)}; }
TS_INLINE f64v d_fma(f64v a, f64v b, f64v c) { return {_mm512_fmadd_pd(a.v, b.v, c.v)}; }
TS_INLINE f64v d_fnma(f64v a, f64v b, f64v c) { return {_mm512_fnmadd_pd(a.v, b.v, c.v)}; }
TS_INLINE f64v d_min(f64v a, f64v b) { return {_mm512_min_pd(a.v, b.v)}; }
TS_INLINE f64v d_max(f64v a, f64v b) { return {_mm512_max_pd(a.v, b.v)}; }
TS_INLINE f64v d_and(f64v a, f64v b) { return {_mm512_and_pd(a.v, b.v)}; }
TS_INLINE f64v d_or(f64v a, f64v b) { return {_mm512_or_pd(a.v, b.v)}; }
TS_INLINE f64v d_xor(f64v a, f64v b) { return {_mm512_xor_pd(a.v, b.v)}; }
TS_INLINE f64v d_iadd(f64v a, f64v b) { return d_of_int(_mm512_add_epi64(d_to_int(a), d_to_int(b))); }
TS_INLINE f64v d_isub(f64v a, f64v b) { return d_of_int(_mm512_sub_epi64(d_to_int(a), d_to_int(b))); }
template <int N>
TS_INLINE f64v d_shl(f64v a) { return d_of_int(_mm512_slli_epi64(d_to_int(a), N)); }
template <int N>
TS_INLINE f64v d_shr(f64v a) { return d_of_int(_mm512_srli_epi64(d_to_int(a), N)); }
TS_INLINE f64m d_lt(f64v a, f64v b) { return {_mm512_cmp_pd_mask(a.v, b.v, _CMP_LT_OQ)}; }
TS_INLINE f64m d_eq(f64v a, f64v b) { return {_mm512_cmp_pd_mask(a.v, b.v, _CMP_EQ_OQ)}; }
TS_INLINE f64m d_signbit(f64v a) { return {_mm512_movepi64_mask(d_to_int(a))}; }
TS_INLINE f64v d_select(f64m m, f64v a, f64v b) { return {_mm512_mask_blend_pd(m.v, b.v, a.v)}; }

// Loads and stores of kF64Lanes elements. Binary32 is widened exactly, and narrowed with one rounding,
// a zero to +0.
TS_INLINE f64v d_load(const double* p) { return {_mm512_loadu_pd(p)}; }
TS_INLINE void d_store(double* p, f64v a) { _mm512_storeu_pd(p, a.v); }
TS_INLINE f64v d_load_f32(const float* p) { return {_mm512_cvtps_pd(_mm256_loadu_ps(p))}; }
TS_INLINE void d_store_f32(float* p, f64v a) {
  _mm256_storeu_ps(p, _mm256_add_ps(_mm512_cvtpd_ps(a.v), _mm256_setzero_ps()));
}
// Lanes whose values rounded to binary32 are unequal or NaN: bit l for lane l.
TS_INLINE unsigned d_differ_f32(f64v a, f64v b) {
  return _mm256_cmp_ps_mask(_mm512_cvtpd_ps(a.v), _mm512_cvtpd_ps(b.v), _CMP_NEQ_UQ);
}

TS_INLINE f32reg r_load(const float* p) { return _mm512_loadu_ps(p); }
TS_INLINE void r_store(float* p, f32reg x) { _mm512_storeu_ps(p, x); }
TS_INLINE f32reg r_bits(uint32_t u) {
  return _mm512_castsi512_ps(_mm512_set1_epi32(static_cast<int>(u)));
}
TS_INLINE f32reg r_and(f32reg a, f32reg b) { return _mm512_and_ps(a, b); }
TS_INLINE f32reg r_or(f32reg a, f32reg b) { return _mm512_or_ps(a, b); }
TS_INLINE f32reg r_xor(f32reg a, f32reg b) { return _mm512_xor_ps(a, b); }
TS_INLINE f32reg r_where_lt(f32reg a, f32reg b, f32reg yes, f32reg no) {
  return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), no, yes);
}
TS_INLINE f32reg r_where_eq(f32reg a, f32reg b, f32reg yes, f32reg no) {
  return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ), no, yes);
}
TS_INLINE bool r_any_ge(f32reg a, f32reg b) { return _mm512_cmp_ps_mask(a, b, _CMP_GE_OQ) != 0; }

template <class Core>
TS_INLINE f32reg r_map(f32reg x) {
  const f64v lo = Core::run(f64v{_mm512_cvtps_pd(_mm512_castps512_ps256(x))});
  const f64v hi = Core::run(f64v{_mm512_cvtps_pd(_mm512_extractf32x8_ps(x, 1))});
  return _mm512_insertf32x8(_mm512_castps256_ps512(_mm512_cvtpd_ps(lo.v)), _mm512_cvtpd_ps(hi.v), 1);
}

}  // namespace tallystick::TS_ISA
