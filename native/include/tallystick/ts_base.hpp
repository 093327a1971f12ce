// Helpers that every kernel family may use. They live in the namespace of the instruction set being
// compiled. The linker would merge an inline function that translation units built with different
// -m flags share into one copy, and that copy may use instructions that the machine lacks.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>

#ifndef TS_ISA
#error "compile kernel families with -DTS_ISA=<scalar|avx2|avx512|neon>"
#endif

#define TS_INLINE inline __attribute__((always_inline))
#define TS_CAT2(a, b) a##b
#define TS_CAT(a, b) TS_CAT2(a, b)
// The per-ISA name of an exported table: gemm_table_avx2 ...
#define TS_TABLE(family) TS_CAT(family##_table_, TS_ISA)

namespace tallystick {
namespace TS_ISA {

constexpr uint32_t kCanonicalNan = 0x7fc00000u;  // NUMERICS 1.5

template <class T>
TS_INLINE T ts_min(T a, T b) { return b < a ? b : a; }
template <class T>
TS_INLINE T ts_max(T a, T b) { return a < b ? b : a; }
TS_INLINE size_t ceil_div(size_t a, size_t b) { return (a + b - 1) / b; }

TS_INLINE uint32_t float_bits(float x) { uint32_t u; std::memcpy(&u, &x, 4); return u; }
TS_INLINE float bits_float(uint32_t u) { float x; std::memcpy(&x, &u, 4); return x; }
TS_INLINE uint64_t double_bits(double x) { uint64_t u; std::memcpy(&u, &x, 8); return u; }
TS_INLINE double bits_double(uint64_t u) { double x; std::memcpy(&x, &u, 8); return x; }

TS_INLINE float canonical_nan(float x) { return x != x ? bits_float(kCanonicalNan) : x; }

// Contract fma: one rounding (NUMERICS 1.4). The builtin becomes an instruction where the flags
// allow it and libm's correctly rounded fma elsewhere.
TS_INLINE float fma1(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
TS_INLINE double fma1(double a, double b, double c) { return __builtin_fma(a, b, c); }

#ifdef TALLYSTICK_FAULT
// The planted fault: the last bit of a finite result flips. Exists only in fault builds.
TS_INLINE float planted(float x) { return x == x ? bits_float(float_bits(x) ^ 1u) : x; }
#else
TS_INLINE float planted(float x) { return x; }
#endif

}  // namespace TS_ISA
}  // namespace tallystick
