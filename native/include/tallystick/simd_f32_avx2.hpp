// simd_f32.hpp for AVX2 with FMA: 8 lanes.
#pragma once
#include <immintrin.h>

#include "tallystick/ts_base.hpp"

namespace tallystick::TS_ISA {

using f32v = __m256;
// A wrapper, so that the compiler cannot take a mask for a value. A lane has all bits set, or none.
struct f32m { __m256 v; };
constexpr size_t kF32Lanes = 8;

TS_INLINE f32v v_set1(float x) { return _mm256_set1_ps(x); }
TS_INLINE f32v v_bits(uint32_t u) {
  return _mm256_castsi256_ps(_mm256_set1_epi32(static_cast<int>(u)));
}
TS_INLINE f32v v_load(const float* p) { return _mm256_loadu_ps(p); }
TS_INLINE void v_store(float* p, f32v a) { _mm256_storeu_ps(p, a); }
TS_INLINE __m256i lanes_below(size_t n) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(n)),
                            _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
// n lanes; the others are +0 (or `fill`'s). Memory past n is not touched.
TS_INLINE f32v v_load_n(const float* p, size_t n) { return _mm256_maskload_ps(p, lanes_below(n)); }
TS_INLINE f32v v_load_n(const float* p, size_t n, f32v fill) {
  const __m256i k = lanes_below(n);
  return _mm256_blendv_ps(fill, _mm256_maskload_ps(p, k), _mm256_castsi256_ps(k));
}
TS_INLINE void v_store_n(float* p, f32v a, size_t n) { _mm256_maskstore_ps(p, lanes_below(n), a); }
TS_INLINE float v_lane0(f32v a) { return _mm256_cvtss_f32(a); }

TS_INLINE f32v v_sqrt(f32v a) { return _mm256_sqrt_ps(a); }
TS_INLINE f32v v_fma(f32v a, f32v b, f32v c) { return _mm256_fmadd_ps(a, b, c); }
TS_INLINE f32v v_and(f32v a, f32v b) { return _mm256_and_ps(a, b); }
TS_INLINE f32v v_or(f32v a, f32v b) { return _mm256_or_ps(a, b); }
TS_INLINE f32v v_xor(f32v a, f32v b) { return _mm256_xor_ps(a, b); }

TS_INLINE f32m v_lt(f32v a, f32v b) { return {_mm256_cmp_ps(a, b, _CMP_LT_OQ)}; }
TS_INLINE f32m v_le(f32v a, f32v b) { return {_mm256_cmp_ps(a, b, _CMP_LE_OQ)}; }
TS_INLINE f32m v_gt(f32v a, f32v b) { return {_mm256_cmp_ps(a, b, _CMP_GT_OQ)}; }
TS_INLINE f32m v_ge(f32v a, f32v b) { return {_mm256_cmp_ps(a, b, _CMP_GE_OQ)}; }
TS_INLINE f32m v_eq(f32v a, f32v b) { return {_mm256_cmp_ps(a, b, _CMP_EQ_OQ)}; }
TS_INLINE f32m v_ne(f32v a, f32v b) { return {_mm256_cmp_ps(a, b, _CMP_NEQ_UQ)}; }
TS_INLINE f32m m_and(f32m a, f32m b) { return {_mm256_and_ps(a.v, b.v)}; }
TS_INLINE f32m m_or(f32m a, f32m b) { return {_mm256_or_ps(a.v, b.v)}; }
TS_INLINE f32m m_not(f32m a) { return {_mm256_xor_ps(a.v, v_bits(0xffffffffu))}; }
TS_INLINE f32m m_first(size_t n) { return {_mm256_castsi256_ps(lanes_below(n))}; }
TS_INLINE bool m_any(f32m m) { return _mm256_movemask_ps(m.v) != 0; }
TS_INLINE f32v v_blend(f32m m, f32v a, f32v b) { return _mm256_blendv_ps(b, a, m.v); }
TS_INLINE f32m m_load(const uint8_t* p) {
  const __m256i w = _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
  return {_mm256_castsi256_ps(_mm256_cmpgt_epi32(w, _mm256_setzero_si256()))};
}
TS_INLINE void m_store(uint8_t* p, f32m m) {
  const __m256i w = _mm256_srli_epi32(_mm256_castps_si256(m.v), 31);
  const __m128i h = _mm_packs_epi32(_mm256_castsi256_si128(w), _mm256_extracti128_si256(w, 1));
  _mm_storel_epi64(reinterpret_cast<__m128i*>(p), _mm_packus_epi16(h, h));
}

// max_ps returns its second operand on equality and NaN; equal values differ only as zeros do.
TS_INLINE f32v v_max(f32v a, f32v b) {
  const f32v r = v_blend(v_eq(a, b), v_and(a, b), _mm256_max_ps(a, b));
  return v_blend({_mm256_cmp_ps(a, b, _CMP_UNORD_Q)}, v_bits(kCanonicalNan), r);
}
TS_INLINE f32v v_min(f32v a, f32v b) {
  const f32v r = v_blend(v_eq(a, b), v_or(a, b), _mm256_min_ps(a, b));
  return v_blend({_mm256_cmp_ps(a, b, _CMP_UNORD_Q)}, v_bits(kCanonicalNan), r);
}
// Lanes added in halves: l + (l+4), then l + (l+2), then l + (l+1) (NUMERICS 3.1).
TS_INLINE float v_tree(f32v a) {
  __m128 x = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  x = _mm_add_ps(x, _mm_movehl_ps(x, x));
  return _mm_cvtss_f32(_mm_add_ss(x, _mm_shuffle_ps(x, x, 1)));
}
TS_INLINE float v_reduce_max(f32v a) {
  a = v_max(a, _mm256_permute2f128_ps(a, a, 1));
  a = v_max(a, _mm256_permute_ps(a, 0x4e));
  return v_lane0(v_max(a, _mm256_permute_ps(a, 0xb1)));
}
TS_INLINE float v_reduce_min(f32v a) {
  a = v_min(a, _mm256_permute2f128_ps(a, a, 1));
  a = v_min(a, _mm256_permute_ps(a, 0x4e));
  return v_lane0(v_min(a, _mm256_permute_ps(a, 0xb1)));
}

}  // namespace tallystick::TS_ISA
