// simd_f32.hpp for AVX-512 (F, DQ, BW, VL): 16 lanes.
#pragma once
#include <immintrin.h>

#include "tallystick/ts_base.hpp"

namespace tallystick::TS_ISA {

using f32v = __m512;
struct f32m { __mmask16 v; };
constexpr size_t kF32Lanes = 16;

TS_INLINE f32v v_set1(float x) { return _mm512_set1_ps(x); }
TS_INLINE f32v v_bits(uint32_t u) {
  return _mm512_castsi512_ps(_mm512_set1_epi32(static_cast<int>(u)));
}
TS_INLINE f32v v_load(const float* p) { return _mm512_loadu_ps(p); }
TS_INLINE void v_store(float* p, f32v a) { _mm512_storeu_ps(p, a); }
TS_INLINE __mmask16 lanes_below(size_t n) {
  return static_cast<__mmask16>((1u << n) - 1u);
}
// n lanes; the others are +0 (or `fill`'s). Memory past n is not touched.
TS_INLINE f32v v_load_n(const float* p, size_t n) {
  return _mm512_maskz_loadu_ps(lanes_below(n), p);
}
TS_INLINE f32v v_load_n(const float* p, size_t n, f32v fill) {
  return _mm512_mask_loadu_ps(fill, lanes_below(n), p);
}
TS_INLINE void v_store_n(float* p, f32v a, size_t n) {
  _mm512_mask_storeu_ps(p, lanes_below(n), a);
}
TS_INLINE float v_lane0(f32v a) { return _mm512_cvtss_f32(a); }

TS_INLINE f32v v_sqrt(f32v a) { return _mm512_sqrt_ps(a); }
TS_INLINE f32v v_fma(f32v a, f32v b, f32v c) { return _mm512_fmadd_ps(a, b, c); }
TS_INLINE f32v v_and(f32v a, f32v b) { return _mm512_and_ps(a, b); }
TS_INLINE f32v v_or(f32v a, f32v b) { return _mm512_or_ps(a, b); }
TS_INLINE f32v v_xor(f32v a, f32v b) { return _mm512_xor_ps(a, b); }

TS_INLINE f32m v_lt(f32v a, f32v b) { return {_mm512_cmp_ps_mask(a, b, _CMP_LT_OQ)}; }
TS_INLINE f32m v_le(f32v a, f32v b) { return {_mm512_cmp_ps_mask(a, b, _CMP_LE_OQ)}; }
TS_INLINE f32m v_gt(f32v a, f32v b) { return {_mm512_cmp_ps_mask(a, b, _CMP_GT_OQ)}; }
TS_INLINE f32m v_ge(f32v a, f32v b) { return {_mm512_cmp_ps_mask(a, b, _CMP_GE_OQ)}; }
TS_INLINE f32m v_eq(f32v a, f32v b) { return {_mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ)}; }
TS_INLINE f32m v_ne(f32v a, f32v b) { return {_mm512_cmp_ps_mask(a, b, _CMP_NEQ_UQ)}; }
TS_INLINE f32m m_and(f32m a, f32m b) { return {static_cast<__mmask16>(a.v & b.v)}; }
TS_INLINE f32m m_or(f32m a, f32m b) { return {static_cast<__mmask16>(a.v | b.v)}; }
TS_INLINE f32m m_not(f32m a) { return {static_cast<__mmask16>(~a.v)}; }
TS_INLINE f32m m_first(size_t n) { return {lanes_below(n)}; }
TS_INLINE bool m_any(f32m m) { return m.v != 0; }
TS_INLINE f32v v_blend(f32m m, f32v a, f32v b) { return _mm512_mask_blend_ps(m.v, b, a); }
TS_INLINE f32m m_load(const uint8_t* p) {
  const __m128i b = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return {_mm_test_epi8_mask(b, b)};
}
TS_INLINE void m_store(uint8_t* p, f32m m) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm_maskz_set1_epi8(m.v, 1));
}

// vrange orders -0 below +0 but drops a lone NaN; the blend puts the NaN back (NUMERICS 1.11).
TS_INLINE f32v v_max(f32v a, f32v b) {
  const __mmask16 nan = _mm512_cmp_ps_mask(a, b, _CMP_UNORD_Q);
  return _mm512_mask_blend_ps(nan, _mm512_range_ps(a, b, 5), v_bits(kCanonicalNan));
}
TS_INLINE f32v v_min(f32v a, f32v b) {
  const __mmask16 nan = _mm512_cmp_ps_mask(a, b, _CMP_UNORD_Q);
  return _mm512_mask_blend_ps(nan, _mm512_range_ps(a, b, 4), v_bits(kCanonicalNan));
}
// Lanes added in halves: l + (l+8), l + (l+4), l + (l+2), l + (l+1) (NUMERICS 3.1).
TS_INLINE float v_tree(f32v a) {
  const __m256 y = _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
  __m128 x = _mm_add_ps(_mm256_castps256_ps128(y), _mm256_extractf128_ps(y, 1));
  x = _mm_add_ps(x, _mm_movehl_ps(x, x));
  return _mm_cvtss_f32(_mm_add_ss(x, _mm_shuffle_ps(x, x, 1)));
}
TS_INLINE float v_reduce_max(f32v a) {
  a = v_max(a, _mm512_shuffle_f32x4(a, a, 0x4e));
  a = v_max(a, _mm512_shuffle_f32x4(a, a, 0xb1));
  a = v_max(a, _mm512_permute_ps(a, 0x4e));
  return v_lane0(v_max(a, _mm512_permute_ps(a, 0xb1)));
}
TS_INLINE float v_reduce_min(f32v a) {
  a = v_min(a, _mm512_shuffle_f32x4(a, a, 0x4e));
  a = v_min(a, _mm512_shuffle_f32x4(a, a, 0xb1));
  a = v_min(a, _mm512_permute_ps(a, 0x4e));
  return v_lane0(v_min(a, _mm512_permute_ps(a, 0xb1)));
}

}  // namespace tallystick::TS_ISA
