// The binary32 vector layer: one small set of operations, written once per instruction set, so that
// a kernel is written once. `f32v` is the native register (float, __m256, __m512, float32x4_t), the
// same type elementary.hpp's cr_* functions take; `f32m` is a lane mask. Every arithmetic operation
// is one IEEE-754 operation per lane, hence the same bits on every path (NUMERICS 1.8).
//
//   v_set1 v_bits v_load v_load_n v_store v_store_n       whole and partial registers
//   v_add v_sub v_mul v_div v_sqrt v_fma v_neg v_abs      one rounding each, or none
//   v_max v_min                                           NUMERICS 1.11 (NaN wins, +0 > -0)
//   v_lt v_le v_eq v_ne v_gt v_ge v_isnan                 NUMERICS 1.10, giving f32m
//   v_blend(m, a, b)                                      m ? a : b, per lane
//   m_and m_or m_not m_load m_load_n m_store m_store_n    masks; in memory a byte 0 or 1 per lane
//   m_first(n) m_any                                     the first n lanes; any lane set
//   v_load_any(p, n)                                      n lanes: whole when n = kF32Lanes
//   v_put v_put_n                                         store an operator's result: canonical NaN
//   v_tree                                                halving sum of the register's lanes
#pragma once
#include "tallystick/ts_base.hpp"

// A functor that a kernel calls once per register must be inlined into the kernel.
#define TS_LAMBDA __attribute__((always_inline))

#if defined(TS_ISA_AVX512)
#include "tallystick/simd_f32_avx512.hpp"
#elif defined(TS_ISA_AVX2)
#include "tallystick/simd_f32_avx2.hpp"
#elif defined(TS_ISA_NEON)
#include "tallystick/simd_f32_neon.hpp"
#else
#include "tallystick/simd_f32_scalar.hpp"
#endif

namespace tallystick::TS_ISA {

// The compilers' operators on a register are the instruction sets' operations, lane by lane.
TS_INLINE f32v v_add(f32v a, f32v b) { return a + b; }
TS_INLINE f32v v_sub(f32v a, f32v b) { return a - b; }
TS_INLINE f32v v_mul(f32v a, f32v b) { return a * b; }
TS_INLINE f32v v_div(f32v a, f32v b) { return a / b; }

TS_INLINE f32v v_load_any(const float* p, size_t n) {
  return n == kF32Lanes ? v_load(p) : v_load_n(p, n);
}
TS_INLINE void v_store_any(float* p, f32v a, size_t n) {
  if (n == kF32Lanes) v_store(p, a);
  else v_store_n(p, a, n);
}
TS_INLINE f32v v_zero() { return v_set1(0.0f); }
TS_INLINE f32v v_neg(f32v a) { return v_xor(a, v_bits(0x80000000u)); }
TS_INLINE f32v v_abs(f32v a) { return v_and(a, v_bits(0x7fffffffu)); }
TS_INLINE f32m v_isnan(f32v a) { return v_ne(a, a); }
// NUMERICS 1.5.
TS_INLINE f32v v_canon(f32v a) { return v_blend(v_isnan(a), v_bits(kCanonicalNan), a); }

#ifdef TALLYSTICK_FAULT
TS_INLINE f32v v_planted(f32v a) { return v_blend(v_isnan(a), a, v_xor(a, v_bits(1u))); }
#else
TS_INLINE f32v v_planted(f32v a) { return a; }
#endif

// Stores of results of float operators: canonical NaN, and the planted fault of a fault build.
TS_INLINE void v_put(float* p, f32v a) { v_store(p, v_canon(v_planted(a))); }
TS_INLINE void v_put_n(float* p, f32v a, size_t n) { v_store_n(p, v_canon(v_planted(a)), n); }
TS_INLINE void put1(float* p, float a) { *p = canonical_nan(planted(a)); }
// out[i] = f(i, lanes) for i < n, by v_put.
template <class F>
TS_INLINE void map_out(size_t n, float* out, const F& f) {
  size_t i = 0;
  for (; i + kF32Lanes <= n; i += kF32Lanes) v_put(out + i, f(i, kF32Lanes));
  if (i < n) v_put_n(out + i, f(i, n - i), n - i);
}

// Lane 0's path for one float: max and min of NUMERICS 1.11.
TS_INLINE float max1(float a, float b) {
  if (a != a || b != b) return bits_float(kCanonicalNan);
  if (a == b) return bits_float(float_bits(a) & float_bits(b));
  return a < b ? b : a;
}
TS_INLINE float min1(float a, float b) {
  if (a != a || b != b) return bits_float(kCanonicalNan);
  if (a == b) return bits_float(float_bits(a) | float_bits(b));
  return b < a ? b : a;
}

TS_INLINE f32m m_load_n(const uint8_t* p, size_t n) {
  uint8_t b[kF32Lanes] = {0};
  for (size_t i = 0; i < n; ++i) b[i] = p[i];
  return m_load(b);
}
TS_INLINE void m_store_n(uint8_t* p, f32m m, size_t n) {
  uint8_t b[kF32Lanes];
  m_store(b, m);
  for (size_t i = 0; i < n; ++i) p[i] = b[i];
}

}  // namespace tallystick::TS_ISA
