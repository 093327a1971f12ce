// Helpers that every kernel family may use. They live in the namespace of the instruction set being
// compiled. The linker would merge an inline function that translation units built with different
// -m flags share into one copy, and that copy may use instructions that the machine lacks.
//
// CUDA's compilers read the same headers for the device, with TS_ISA=device and the scalar path.
#pragma once
#ifdef __CUDACC_RTC__  // NVRTC has no standard headers
using int8_t = signed char;
using uint8_t = unsigned char;
using int16_t = short;
using uint16_t = unsigned short;
using int32_t = int;
using uint32_t = unsigned int;
using int64_t = long long;
using uint64_t = unsigned long long;
using size_t = decltype(sizeof(0));
using ptrdiff_t = decltype(static_cast<char*>(nullptr) - static_cast<char*>(nullptr));
#else
#include <cstddef>
#include <cstdint>
#include <cstring>
#endif

#ifndef TS_ISA
#error "compile kernel families with -DTS_ISA=<scalar|avx2|avx512|neon|device>"
#endif

#ifdef __CUDACC__
#define TS_INLINE __device__ __forceinline__
#define TS_OUTLINE static __device__ __noinline__
#define TS_MEMBER __device__
// Tables of constants. Loops over them are unrolled, so that they become immediate operands.
#define TS_CONSTANT __device__ constexpr
#else
#define TS_INLINE inline __attribute__((always_inline))
#define TS_OUTLINE static inline __attribute__((noinline))  // slow paths
#define TS_MEMBER
#define TS_CONSTANT constexpr
#endif
#define TS_CAT2(a, b) a##b
#define TS_CAT(a, b) TS_CAT2(a, b)
// The per-ISA name of an exported table: gemm_table_avx2 ...
#define TS_TABLE(family) TS_CAT(family##_table_, TS_ISA)
// Begins its definition. A constant needs a declaration to be seen outside of its file.
#define TS_DEFINE_TABLE(Type, family)   \
  extern const Type TS_TABLE(family); \
  const Type TS_TABLE(family)

namespace tallystick::TS_ISA {

constexpr uint32_t kCanonicalNan = 0x7fc00000u;  // NUMERICS 1.5

template <class T>
TS_INLINE T ts_min(T a, T b) { return b < a ? b : a; }
template <class T>
TS_INLINE T ts_max(T a, T b) { return a < b ? b : a; }
TS_INLINE size_t ceil_div(size_t a, size_t b) { return (a + b - 1) / b; }

#ifdef __CUDACC__
TS_INLINE uint32_t float_bits(float x) { return __float_as_uint(x); }
TS_INLINE float bits_float(uint32_t u) { return __uint_as_float(u); }
TS_INLINE uint64_t double_bits(double x) { return static_cast<uint64_t>(__double_as_longlong(x)); }
TS_INLINE double bits_double(uint64_t u) { return __longlong_as_double(static_cast<long long>(u)); }
#else
TS_INLINE uint32_t float_bits(float x) { uint32_t u; std::memcpy(&u, &x, 4); return u; }
TS_INLINE float bits_float(uint32_t u) { float x; std::memcpy(&x, &u, 4); return x; }
TS_INLINE uint64_t double_bits(double x) { uint64_t u; std::memcpy(&u, &x, 8); return u; }
TS_INLINE double bits_double(uint64_t u) { double x; std::memcpy(&x, &u, 8); return x; }
#endif

// Of values that are not 0.
#ifdef __CUDACC__
TS_INLINE int leading_zeros(uint64_t x) { return __clzll(static_cast<long long>(x)); }
TS_INLINE int trailing_zeros(uint32_t x) { return __ffs(static_cast<int>(x)) - 1; }
#else
TS_INLINE int leading_zeros(uint64_t x) { return __builtin_clzll(x); }
TS_INLINE int trailing_zeros(uint32_t x) { return __builtin_ctz(x); }
#endif
TS_INLINE bool unlikely(bool x) { return __builtin_expect(x, false); }

TS_INLINE float canonical_nan(float x) { return x != x ? bits_float(kCanonicalNan) : x; }

// Contract fma: one rounding (NUMERICS 1.4). The builtin becomes an instruction where the flags
// allow it and libm's correctly rounded fma elsewhere.
#ifdef __CUDACC__
// Inline assembly, so that the compiled code tells these from an fma that the compiler made of a
// product and a sum: the check of the code (native/tools/device_code) refuses every other one.
TS_INLINE float fma1(float a, float b, float c) {
  float r;
  asm("fma.rn.f32 %0, %1, %2, %3;" : "=f"(r) : "f"(a), "f"(b), "f"(c));
  return r;
}
TS_INLINE double fma1(double a, double b, double c) {
  double r;
  asm("fma.rn.f64 %0, %1, %2, %3;" : "=d"(r) : "d"(a), "d"(b), "d"(c));
  return r;
}
TS_INLINE float sqrt1(float a) { return __fsqrt_rn(a); }
TS_INLINE double sqrt1(double a) { return __dsqrt_rn(a); }
#else
TS_INLINE float fma1(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
TS_INLINE double fma1(double a, double b, double c) { return __builtin_fma(a, b, c); }
TS_INLINE float sqrt1(float a) { return __builtin_sqrtf(a); }
TS_INLINE double sqrt1(double a) { return __builtin_sqrt(a); }
#endif

#ifdef TALLYSTICK_FAULT
// The planted fault: the last bit of a finite result flips, that of an integer sum too. Exists only in fault builds.
TS_INLINE float planted(float x) { return x == x ? bits_float(float_bits(x) ^ 1u) : x; }
TS_INLINE int64_t planted(int64_t x) { return x ^ 1; }
#else
TS_INLINE float planted(float x) { return x; }
TS_INLINE int64_t planted(int64_t x) { return x; }
#endif

}  // namespace tallystick::TS_ISA
