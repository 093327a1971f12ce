// Vectors of 16-bit integers whose products are added in 32 bits. Integers do not round, so every
// path gives the same sums.
#pragma once
#if defined(TS_ISA_AVX2) || defined(TS_ISA_AVX512)
#include <immintrin.h>
#elif defined(TS_ISA_NEON)
#include <arm_neon.h>
#endif

#include "tallystick/ts_base.hpp"

namespace tallystick::TS_ISA {

#if defined(TS_ISA_AVX512)
constexpr size_t kI16Lanes = 32;
struct i32v { __m512i v; };
struct i16v { __m512i v; };
TS_INLINE i32v i_zero() { return {_mm512_setzero_si512()}; }
TS_INLINE i16v i_load(const int16_t* p) { return {_mm512_loadu_si512(p)}; }
TS_INLINE i32v i_dot(i32v s, i16v a, i16v b) {
  return {_mm512_add_epi32(s.v, _mm512_madd_epi16(a.v, b.v))};
}
TS_INLINE int32_t i_sum(i32v s) {
  int32_t lane[16];
  _mm512_storeu_si512(lane, s.v);
  int32_t total = 0;
  for (int l = 0; l < 16; ++l) total += lane[l];
  return total;
}
#elif defined(TS_ISA_AVX2)
constexpr size_t kI16Lanes = 16;
struct i32v { __m256i v; };
struct i16v { __m256i v; };
TS_INLINE i32v i_zero() { return {_mm256_setzero_si256()}; }
TS_INLINE i16v i_load(const int16_t* p) {
  return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))};
}
TS_INLINE i32v i_dot(i32v s, i16v a, i16v b) {
  return {_mm256_add_epi32(s.v, _mm256_madd_epi16(a.v, b.v))};
}
TS_INLINE int32_t i_sum(i32v s) {
  __m128i t = _mm_add_epi32(_mm256_castsi256_si128(s.v), _mm256_extracti128_si256(s.v, 1));
  t = _mm_add_epi32(t, _mm_shuffle_epi32(t, 0x4e));
  t = _mm_add_epi32(t, _mm_shuffle_epi32(t, 0xb1));
  return _mm_cvtsi128_si32(t);
}
#elif defined(TS_ISA_NEON)
constexpr size_t kI16Lanes = 8;
struct i32v { int32x4_t v; };
struct i16v { int16x8_t v; };
TS_INLINE i32v i_zero() { return {vdupq_n_s32(0)}; }
TS_INLINE i16v i_load(const int16_t* p) { return {vld1q_s16(p)}; }
TS_INLINE i32v i_dot(i32v s, i16v a, i16v b) {
  const int32x4_t low = vmlal_s16(s.v, vget_low_s16(a.v), vget_low_s16(b.v));
  return {vmlal_s16(low, vget_high_s16(a.v), vget_high_s16(b.v))};
}
TS_INLINE int32_t i_sum(i32v s) { return vaddvq_s32(s.v); }
#else
constexpr size_t kI16Lanes = 1;
struct i32v { int32_t v; };
struct i16v { int16_t v; };
TS_INLINE i32v i_zero() { return {0}; }
TS_INLINE i16v i_load(const int16_t* p) { return {*p}; }
TS_INLINE i32v i_dot(i32v s, i16v a, i16v b) { return {s.v + int32_t(a.v) * int32_t(b.v)}; }
TS_INLINE int32_t i_sum(i32v s) { return s.v; }
#endif

}  // namespace tallystick::TS_ISA
