// simd_f64.hpp for plain C++: one lane. The reference that the other paths are compared with.
#pragma once
#include "tallystick/ts_base.hpp"

namespace tallystick::TS_ISA {

using f32reg = float;
constexpr size_t kF32RegLanes = 1;
constexpr size_t kF64Lanes = 1;
struct f64v { double v; };
struct f64m { bool v; };

TS_INLINE f64v d_set1(double x) { return {x}; }
TS_INLINE f64v d_set1_bits(uint64_t u) { return {bits_double(u)}; }
TS_INLINE double d_lane0(f64v a) { return a.v; }
TS_INLINE f64v d_sqrt(f64v a) { return {sqrt1(a.v)}; }
// a*b + c and c - a*b, each rounded once.
TS_INLINE f64v d_fma(f64v a, f64v b, f64v c) { return {fma1(a.v, b.v, c.v)}; }
TS_INLINE f64v d_fnma(f64v a, f64v b, f64v c) { return {fma1(-a.v, b.v, c.v)}; }
// For a NaN in either operand the result is unspecified; callers overwrite such lanes.
TS_INLINE f64v d_min(f64v a, f64v b) { return {a.v < b.v ? a.v : b.v}; }
TS_INLINE f64v d_max(f64v a, f64v b) { return {a.v > b.v ? a.v : b.v}; }
TS_INLINE f64v d_and(f64v a, f64v b) { return {bits_double(double_bits(a.v) & double_bits(b.v))}; }
TS_INLINE f64v d_or(f64v a, f64v b) { return {bits_double(double_bits(a.v) | double_bits(b.v))}; }
TS_INLINE f64v d_xor(f64v a, f64v b) { return {bits_double(double_bits(a.v) ^ double_bits(b.v))}; }
// Integer arithmetic on the 64-bit patterns, wrapping.
TS_INLINE f64v d_iadd(f64v a, f64v b) { return {bits_double(double_bits(a.v) + double_bits(b.v))}; }
TS_INLINE f64v d_isub(f64v a, f64v b) { return {bits_double(double_bits(a.v) - double_bits(b.v))}; }
template <int N>
TS_INLINE f64v d_shl(f64v a) { return {bits_double(double_bits(a.v) << N)}; }
template <int N>
TS_INLINE f64v d_shr(f64v a) { return {bits_double(double_bits(a.v) >> N)}; }
TS_INLINE f64m d_lt(f64v a, f64v b) { return {a.v < b.v}; }
TS_INLINE f64m d_eq(f64v a, f64v b) { return {a.v == b.v}; }
TS_INLINE f64m d_signbit(f64v a) { return {(double_bits(a.v) >> 63) != 0}; }
TS_INLINE f64v d_select(f64m m, f64v a, f64v b) { return m.v ? a : b; }

// Loads and stores of kF64Lanes elements. Binary32 is widened exactly, and narrowed with one rounding,
// a zero to +0.
TS_INLINE f64v d_load(const double* p) { return {*p}; }
TS_INLINE void d_store(double* p, f64v a) { *p = a.v; }
TS_INLINE f64v d_load_f32(const float* p) { return {static_cast<double>(*p)}; }
TS_INLINE void d_store_f32(float* p, f64v a) { *p = static_cast<float>(a.v) + 0.0f; }
// Lanes whose values rounded to binary32 are unequal or NaN: bit l for lane l.
TS_INLINE unsigned d_differ_f32(f64v a, f64v b) {
  return static_cast<float>(a.v) != static_cast<float>(b.v);
}

TS_INLINE f32reg r_load(const float* p) { return *p; }
TS_INLINE void r_store(float* p, f32reg x) { *p = x; }
TS_INLINE f32reg r_bits(uint32_t u) { return bits_float(u); }
TS_INLINE f32reg r_and(f32reg a, f32reg b) { return bits_float(float_bits(a) & float_bits(b)); }
TS_INLINE f32reg r_or(f32reg a, f32reg b) { return bits_float(float_bits(a) | float_bits(b)); }
TS_INLINE f32reg r_xor(f32reg a, f32reg b) { return bits_float(float_bits(a) ^ float_bits(b)); }
// The lanes of `yes` where a < b (or a == b; false for NaN), else those of `no`.
TS_INLINE f32reg r_where_lt(f32reg a, f32reg b, f32reg yes, f32reg no) { return a < b ? yes : no; }
TS_INLINE f32reg r_where_eq(f32reg a, f32reg b, f32reg yes, f32reg no) { return a == b ? yes : no; }
TS_INLINE bool r_any_ge(f32reg a, f32reg b) { return a >= b; }

// Core::run on every lane, widened to binary64 (exact) and rounded back once.
template <class Core>
TS_INLINE f32reg r_map(f32reg x) {
  return static_cast<float>(Core::run(f64v{static_cast<double>(x)}).v);
}

}  // namespace tallystick::TS_ISA
