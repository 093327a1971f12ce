// The few vector operations the dot class needs, and the tile shape, per instruction set.
// kRows x (kVecs * kLanes) outputs are kept in registers by one micro-kernel.
#pragma once
#include "tallystick/ts_base.hpp"

#if defined(TS_ISA_AVX512) || defined(TS_ISA_AVX2)
#include <immintrin.h>
#elif defined(TS_ISA_NEON)
#include <arm_neon.h>
#endif

#if defined(__clang__)
#define TS_UNROLL _Pragma("clang loop unroll(full)")
#else
#define TS_UNROLL _Pragma("GCC unroll 64")
#endif

namespace tallystick::TS_ISA {

#if defined(TS_ISA_AVX512)

using gv = __m512;
constexpr int kLanes = 16, kRows = 14, kVecs = 2;
TS_INLINE gv gv_zero() { return _mm512_setzero_ps(); }
TS_INLINE gv gv_load(const float* p) { return _mm512_loadu_ps(p); }
TS_INLINE void gv_store(float* p, gv v) { _mm512_storeu_ps(p, v); }
TS_INLINE gv gv_set(float x) { return _mm512_set1_ps(x); }
TS_INLINE gv gv_fma(gv a, gv b, gv c) { return _mm512_fmadd_ps(a, b, c); }
TS_INLINE gv gv_canonical(gv v) {
  return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q), v,
                              _mm512_castsi512_ps(_mm512_set1_epi32(0x7fc00000)));
}

// dst[k*step + i] = src[row[i] + k] for a square of kLanes rows and columns.
TS_INLINE void gv_transpose(const float* src, const ptrdiff_t row[kLanes], float* dst,
                            size_t step) {
  gv r[16];
  TS_UNROLL for (int i = 0; i < 16; i += 4) {
    const gv a = gv_load(src + row[i]), b = gv_load(src + row[i + 1]);
    const gv c = gv_load(src + row[i + 2]), d = gv_load(src + row[i + 3]);
    const gv t0 = _mm512_unpacklo_ps(a, b), t1 = _mm512_unpackhi_ps(a, b);
    const gv t2 = _mm512_unpacklo_ps(c, d), t3 = _mm512_unpackhi_ps(c, d);
    r[i] = _mm512_shuffle_ps(t0, t2, 0x44);
    r[i + 1] = _mm512_shuffle_ps(t0, t2, 0xee);
    r[i + 2] = _mm512_shuffle_ps(t1, t3, 0x44);
    r[i + 3] = _mm512_shuffle_ps(t1, t3, 0xee);
  }
  // Stores ascend in k: a store wider than the panel is overwritten by the ones that follow.
  gv late[12];
  TS_UNROLL for (int j = 0; j < 4; ++j) {
    const gv lo02 = _mm512_shuffle_f32x4(r[j], r[j + 4], 0x88);
    const gv lo13 = _mm512_shuffle_f32x4(r[j], r[j + 4], 0xdd);
    const gv hi02 = _mm512_shuffle_f32x4(r[j + 8], r[j + 12], 0x88);
    const gv hi13 = _mm512_shuffle_f32x4(r[j + 8], r[j + 12], 0xdd);
    gv_store(dst + j * step, _mm512_shuffle_f32x4(lo02, hi02, 0x88));
    late[j] = _mm512_shuffle_f32x4(lo13, hi13, 0x88);
    late[j + 4] = _mm512_shuffle_f32x4(lo02, hi02, 0xdd);
    late[j + 8] = _mm512_shuffle_f32x4(lo13, hi13, 0xdd);
  }
  TS_UNROLL for (int j = 0; j < 12; ++j) gv_store(dst + (j + 4) * step, late[j]);
}

#elif defined(TS_ISA_AVX2)

using gv = __m256;
constexpr int kLanes = 8, kRows = 6, kVecs = 2;
TS_INLINE gv gv_zero() { return _mm256_setzero_ps(); }
TS_INLINE gv gv_load(const float* p) { return _mm256_loadu_ps(p); }
TS_INLINE void gv_store(float* p, gv v) { _mm256_storeu_ps(p, v); }
TS_INLINE gv gv_set(float x) { return _mm256_set1_ps(x); }
TS_INLINE gv gv_fma(gv a, gv b, gv c) { return _mm256_fmadd_ps(a, b, c); }
TS_INLINE gv gv_canonical(gv v) {
  return _mm256_blendv_ps(v, _mm256_castsi256_ps(_mm256_set1_epi32(0x7fc00000)),
                          _mm256_cmp_ps(v, v, _CMP_UNORD_Q));
}

TS_INLINE gv gv_halves(const float* q0, const float* q1) {
  return _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(q0)), _mm_loadu_ps(q1), 1);
}

TS_INLINE void gv_transpose(const float* src, const ptrdiff_t row[kLanes], float* dst,
                            size_t step) {
  TS_UNROLL for (int c = 0; c < 8; c += 4) {
    const float* s = src + c;
    const gv x0 = gv_halves(s + row[0], s + row[4]), x1 = gv_halves(s + row[1], s + row[5]);
    const gv x2 = gv_halves(s + row[2], s + row[6]), x3 = gv_halves(s + row[3], s + row[7]);
    const gv t0 = _mm256_unpacklo_ps(x0, x1), t1 = _mm256_unpackhi_ps(x0, x1);
    const gv t2 = _mm256_unpacklo_ps(x2, x3), t3 = _mm256_unpackhi_ps(x2, x3);
    float* d = dst + static_cast<size_t>(c) * step;
    gv_store(d, _mm256_shuffle_ps(t0, t2, 0x44));
    gv_store(d + step, _mm256_shuffle_ps(t0, t2, 0xee));
    gv_store(d + 2 * step, _mm256_shuffle_ps(t1, t3, 0x44));
    gv_store(d + 3 * step, _mm256_shuffle_ps(t1, t3, 0xee));
  }
}

// dst[k*kRows + i] = src[i*s_x + k] for kRows rows and kLanes terms, without overlapping stores.
constexpr bool kPanelTranspose = true;
TS_INLINE void gv_transpose_panel(const float* src, ptrdiff_t s_x, float* dst) {
  gv lo[3], hi[3];  // rows 2i and 2i + 1 interleaved: terms 0, 1, 4, 5 and terms 2, 3, 6, 7
  TS_UNROLL for (int i = 0; i < 3; ++i) {
    const gv a = gv_load(src + 2 * i * s_x), b = gv_load(src + (2 * i + 1) * s_x);
    lo[i] = _mm256_unpacklo_ps(a, b);
    hi[i] = _mm256_unpackhi_ps(a, b);
  }
  // Quarters of the panel's rows 0 to 3 in the lower halves, of 4 to 7 in the upper ones.
  const gv q0 = _mm256_shuffle_ps(lo[0], lo[1], 0x44), q1 = _mm256_shuffle_ps(lo[2], lo[0], 0xe4);
  const gv q2 = _mm256_shuffle_ps(lo[1], lo[2], 0xee), q3 = _mm256_shuffle_ps(hi[0], hi[1], 0x44);
  const gv q4 = _mm256_shuffle_ps(hi[2], hi[0], 0xe4), q5 = _mm256_shuffle_ps(hi[1], hi[2], 0xee);
  gv_store(dst, _mm256_permute2f128_ps(q0, q1, 0x20));
  gv_store(dst + 8, _mm256_permute2f128_ps(q2, q3, 0x20));
  gv_store(dst + 16, _mm256_permute2f128_ps(q4, q5, 0x20));
  gv_store(dst + 24, _mm256_permute2f128_ps(q0, q1, 0x31));
  gv_store(dst + 32, _mm256_permute2f128_ps(q2, q3, 0x31));
  gv_store(dst + 40, _mm256_permute2f128_ps(q4, q5, 0x31));
}

#elif defined(TS_ISA_NEON)

using gv = float32x4_t;
constexpr int kLanes = 4, kRows = 8, kVecs = 2;
TS_INLINE gv gv_zero() { return vdupq_n_f32(0.0f); }
TS_INLINE gv gv_load(const float* p) { return vld1q_f32(p); }
TS_INLINE void gv_store(float* p, gv v) { vst1q_f32(p, v); }
TS_INLINE gv gv_set(float x) { return vdupq_n_f32(x); }
TS_INLINE gv gv_fma(gv a, gv b, gv c) { return vfmaq_f32(c, a, b); }
TS_INLINE gv gv_canonical(gv v) {
  return vbslq_f32(vceqq_f32(v, v), v, vreinterpretq_f32_u32(vdupq_n_u32(kCanonicalNan)));
}

TS_INLINE void gv_transpose(const float* src, const ptrdiff_t row[kLanes], float* dst,
                            size_t step) {
  const float32x4x2_t a = vtrnq_f32(gv_load(src + row[0]), gv_load(src + row[1]));
  const float32x4x2_t b = vtrnq_f32(gv_load(src + row[2]), gv_load(src + row[3]));
  gv_store(dst, vcombine_f32(vget_low_f32(a.val[0]), vget_low_f32(b.val[0])));
  gv_store(dst + step, vcombine_f32(vget_low_f32(a.val[1]), vget_low_f32(b.val[1])));
  gv_store(dst + 2 * step, vcombine_f32(vget_high_f32(a.val[0]), vget_high_f32(b.val[0])));
  gv_store(dst + 3 * step, vcombine_f32(vget_high_f32(a.val[1]), vget_high_f32(b.val[1])));
}

#else  // scalar: one element a time, several independent chains

using gv = float;
constexpr int kLanes = 1, kRows = 3, kVecs = 4;
TS_INLINE gv gv_zero() { return 0.0f; }
TS_INLINE gv gv_load(const float* p) { return *p; }
TS_INLINE void gv_store(float* p, gv v) { *p = v; }
TS_INLINE gv gv_set(float x) { return x; }
TS_INLINE gv gv_fma(gv a, gv b, gv c) { return fma1(a, b, c); }
TS_INLINE gv gv_canonical(gv v) { return canonical_nan(v); }
TS_INLINE void gv_transpose(const float* src, const ptrdiff_t row[kLanes], float* dst, size_t) {
  *dst = src[row[0]];
}

#endif

#if !defined(TS_ISA_AVX2)
constexpr bool kPanelTranspose = false;
TS_INLINE void gv_transpose_panel(const float*, ptrdiff_t, float*) {}
#endif

TS_INLINE gv gv_add(gv a, gv b) { return a + b; }

constexpr int kCols = kVecs * kLanes;
constexpr size_t kChunk = 128;  // NUMERICS 2.1
constexpr size_t kLine = 16;    // floats of a cache line

TS_INLINE void gv_prefetch(const float* p) { __builtin_prefetch(p, 0, 3); }
// Not into the nearest cache.
TS_INLINE void gv_prefetch_far(const float* p) { __builtin_prefetch(p, 0, 2); }
TS_INLINE void gv_prefetch_write(const float* p) { __builtin_prefetch(p, 1, 3); }

// The place of a chunk in its outputs. The first chunk initialises, later ones are added, and the
// last one makes NaN canonical (NUMERICS 1.5). Only bits of outputs are observable, never those of
// partials.
constexpr int kFirst = 1, kLast = 2;

TS_INLINE gv finish(gv v, int flags) {
  if (flags & kLast) {
    v = gv_canonical(v);
#ifdef TALLYSTICK_FAULT
    float lane[kLanes];
    gv_store(lane, v);
    for (int i = 0; i < kLanes; ++i) lane[i] = planted(lane[i]);
    v = gv_load(lane);
#endif
  }
  return v;
}

}  // namespace tallystick::TS_ISA
