#include "families/elementwise.hpp"

#include "tallystick/elementary.hpp"
#include "tallystick/simd_f32.hpp"

namespace tallystick {
namespace TS_ISA {
namespace {

// One struct per operator; p0 and p1 are its parameters in every lane.
#define TS_OP1(name, ...)                                                                \
  struct name##_op {                                                                     \
    TS_INLINE static f32v f(f32v a, [[maybe_unused]] f32v p0, [[maybe_unused]] f32v p1) { \
      __VA_ARGS__                                                                        \
    }                                                                                    \
  };
#define TS_OP2(name, type, ...)                                                  \
  struct name##_op {                                                             \
    TS_INLINE static type f(f32v a, f32v b, [[maybe_unused]] f32v p0) { __VA_ARGS__ } \
  };

TS_INLINE f32v v_one() { return v_set1(1.0f); }

TS_OP1(neg, return v_neg(a);)
TS_OP1(abs, return v_abs(a);)
TS_OP1(reciprocal, return v_div(v_one(), a);)
TS_OP1(sqrt, return v_sqrt(a);)
TS_OP1(rsqrt, return cr_rsqrt(a);)
TS_OP1(square, return v_mul(a, a);)
TS_OP1(cube, return v_mul(v_mul(a, a), a);)
// NUMERICS 6.11: a NaN is kept because it is not <= 0, and -0 becomes +0.
TS_OP1(relu, return v_blend(v_le(a, v_zero()), v_zero(), a);)
TS_OP1(silu, return v_mul(a, cr_sigmoid(a));)
TS_OP1(leaky_relu, return v_blend(v_gt(a, v_zero()), a, v_mul(a, p0));)
TS_OP1(clamp_min, return v_max(a, p0);)
TS_OP1(clamp_max, return v_min(a, p1);)
TS_OP1(clamp, return v_min(v_max(a, p0), p1);)

TS_OP2(add, f32v, return v_add(a, b);)
TS_OP2(sub, f32v, return v_sub(a, b);)
TS_OP2(mul, f32v, return v_mul(a, b);)
TS_OP2(div, f32v, return v_div(a, b);)
// NUMERICS 10.2: one rounding.
TS_OP2(add_alpha, f32v, return v_fma(p0, b, a);)
TS_OP2(sub_alpha, f32v, return v_fma(v_neg(p0), b, a);)
TS_OP2(maximum, f32v, return v_max(a, b);)
TS_OP2(minimum, f32v, return v_min(a, b);)
// a is the gradient in the backward operators.
TS_OP2(threshold_backward, f32v, return v_blend(v_le(b, p0), v_zero(), a);)
TS_OP2(silu_backward, f32v, const f32v s = cr_sigmoid(b);
       return v_mul(a, v_mul(s, v_fma(b, v_sub(v_one(), s), v_one())));)
TS_OP2(tanh_backward, f32v, return v_mul(a, v_fma(v_neg(b), b, v_one()));)
TS_OP2(sigmoid_backward, f32v, return v_mul(a, v_mul(b, v_sub(v_one(), b)));)
TS_OP2(squared_difference, f32v, const f32v d = v_sub(a, b); return v_mul(d, d);)
TS_OP2(eq, f32m, return v_eq(a, b);)
TS_OP2(ne, f32m, return v_ne(a, b);)
TS_OP2(lt, f32m, return v_lt(a, b);)
TS_OP2(le, f32m, return v_le(a, b);)
TS_OP2(gt, f32m, return v_gt(a, b);)
TS_OP2(ge, f32m, return v_ge(a, b);)
// NUMERICS 7.4: (2 d) g, over n (p0) for `mean`.
struct mse_backward_op {
  TS_INLINE static f32v f(f32v g, f32v x, f32v y, f32v) {
    return v_mul(v_mul(v_set1(2.0f), v_sub(x, y)), g);
  }
};
struct mse_backward_mean_op {
  TS_INLINE static f32v f(f32v g, f32v x, f32v y, f32v p0) {
    return v_div(v_mul(v_mul(v_set1(2.0f), v_sub(x, y)), g), p0);
  }
};

// A stretch of an operand as contiguous memory: itself, one value spread out, or gathered.
constexpr size_t kChunk = 256;
template <class T>
struct Lane {
  const T* data;
  ptrdiff_t stride;
  alignas(64) T held[kChunk];

  TS_INLINE void open(const EwOperand& from, size_t n) {
    data = static_cast<const T*>(from.data);
    stride = from.stride;
    if (stride == 0)
      for (size_t i = 0; i < ts_min(n, kChunk); ++i) held[i] = *data;
  }
  TS_INLINE const T* at(size_t i, size_t n) {
    if (stride == 1) return data + i;
    if (stride != 0) {
      const T* from = data + static_cast<ptrdiff_t>(i) * stride;
      for (size_t k = 0; k < n; ++k, from += stride) held[k] = *from;
    }
    return held;
  }
};

template <class Op>
void loop(const float* a, float* o, size_t n, f32v p0, f32v p1) {
  size_t i = 0;
  for (; i + kF32Lanes <= n; i += kF32Lanes) v_put(o + i, Op::f(v_load(a + i), p0, p1));
  if (i < n) v_put_n(o + i, Op::f(v_load_n(a + i, n - i), p0, p1), n - i);
}
template <class Op>
void loop(const float* a, const float* b, float* o, size_t n, f32v p0) {
  size_t i = 0;
  for (; i + kF32Lanes <= n; i += kF32Lanes)
    v_put(o + i, Op::f(v_load(a + i), v_load(b + i), p0));
  if (i < n) v_put_n(o + i, Op::f(v_load_n(a + i, n - i), v_load_n(b + i, n - i), p0), n - i);
}
template <class Op>
void loop(const float* a, const float* b, const float* c, float* o, size_t n, f32v p0) {
  size_t i = 0;
  for (; i + kF32Lanes <= n; i += kF32Lanes)
    v_put(o + i, Op::f(v_load(a + i), v_load(b + i), v_load(c + i), p0));
  if (i < n)
    v_put_n(o + i, Op::f(v_load_n(a + i, n - i), v_load_n(b + i, n - i), v_load_n(c + i, n - i), p0),
            n - i);
}
template <class Op>
void loop_compare(const float* a, const float* b, uint8_t* o, size_t n) {
  size_t i = 0;
  for (; i + kF32Lanes <= n; i += kF32Lanes)
    m_store(o + i, Op::f(v_load(a + i), v_load(b + i), v_zero()));
  if (i < n)
    m_store_n(o + i, Op::f(v_load_n(a + i, n - i), v_load_n(b + i, n - i), v_zero()), n - i);
#ifdef TALLYSTICK_FAULT
  for (i = 0; i < n; ++i) o[i] ^= 1;
#endif
}

template <class Op>
void run1(const EwOperand* in, void* out, size_t n, const float* p) {
  float* o = static_cast<float*>(out);
  const f32v p0 = v_set1(p[0]), p1 = v_set1(p[1]);
  if (in[0].stride == 1) return loop<Op>(static_cast<const float*>(in[0].data), o, n, p0, p1);
  Lane<float> a;
  a.open(in[0], n);
  for (size_t i = 0; i < n; i += kChunk) {
    const size_t m = ts_min(kChunk, n - i);
    loop<Op>(a.at(i, m), o + i, m, p0, p1);
  }
}
template <class Op>
void run2(const EwOperand* in, void* out, size_t n, const float* p) {
  float* o = static_cast<float*>(out);
  const f32v p0 = v_set1(p[0]);
  if (in[0].stride == 1 && in[1].stride == 1)
    return loop<Op>(static_cast<const float*>(in[0].data), static_cast<const float*>(in[1].data),
                    o, n, p0);
  Lane<float> a, b;
  a.open(in[0], n);
  b.open(in[1], n);
  for (size_t i = 0; i < n; i += kChunk) {
    const size_t m = ts_min(kChunk, n - i);
    loop<Op>(a.at(i, m), b.at(i, m), o + i, m, p0);
  }
}
template <class Op>
void run3(const EwOperand* in, void* out, size_t n, const float* p) {
  float* o = static_cast<float*>(out);
  const f32v p0 = v_set1(p[0]);
  Lane<float> a, b, c;
  a.open(in[0], n);
  b.open(in[1], n);
  c.open(in[2], n);
  for (size_t i = 0; i < n; i += kChunk) {
    const size_t m = ts_min(kChunk, n - i);
    loop<Op>(a.at(i, m), b.at(i, m), c.at(i, m), o + i, m, p0);
  }
}
template <class Op>
void run_compare(const EwOperand* in, void* out, size_t n, const float*) {
  uint8_t* o = static_cast<uint8_t*>(out);
  Lane<float> a, b;
  a.open(in[0], n);
  b.open(in[1], n);
  for (size_t i = 0; i < n; i += kChunk) {
    const size_t m = ts_min(kChunk, n - i);
    loop_compare<Op>(a.at(i, m), b.at(i, m), o + i, m);
  }
}

// NUMERICS 8.5 computes. masked_fill and where move bits (clause 9) and canonicalise no value.
template <bool kScale>
void run_mask(const EwOperand* in, void* out, size_t n, const float* p) {
  float* o = static_cast<float*>(out);
  const f32v p0 = v_set1(p[0]);
  Lane<float> a;
  Lane<uint8_t> mask;
  a.open(in[0], n);
  mask.open(in[1], n);
  for (size_t i = 0; i < n; i += kChunk) {
    const size_t m = ts_min(kChunk, n - i);
    const float* x = a.at(i, m);
    const uint8_t* k = mask.at(i, m);
    for (size_t j = 0; j < m; j += kF32Lanes) {
      const size_t left = ts_min(kF32Lanes, m - j);
      const f32v v = v_load_any(x + j, left);
      const f32m on = left == kF32Lanes ? m_load(k + j) : m_load_n(k + j, left);
      const f32v r = kScale ? v_blend(on, v_canon(v_mul(v, p0)), v_zero()) : v_blend(on, p0, v);
      v_store_any(o + i + j, v_planted(r), left);
    }
  }
}
void run_where(const EwOperand* in, void* out, size_t n, const float*) {
  float* o = static_cast<float*>(out);
  Lane<uint8_t> mask;
  Lane<float> a, b;
  mask.open(in[0], n);
  a.open(in[1], n);
  b.open(in[2], n);
  for (size_t i = 0; i < n; i += kChunk) {
    const size_t m = ts_min(kChunk, n - i);
    const uint8_t* k = mask.at(i, m);
    const float *x = a.at(i, m), *y = b.at(i, m);
    for (size_t j = 0; j < m; j += kF32Lanes) {
      const size_t left = ts_min(kF32Lanes, m - j);
      const f32m on = left == kF32Lanes ? m_load(k + j) : m_load_n(k + j, left);
      const f32v r = v_blend(on, v_load_any(x + j, left), v_load_any(y + j, left));
      v_store_any(o + i + j, v_planted(r), left);
    }
  }
}

#if defined(TS_ISA_AVX2) || defined(TS_ISA_AVX512)
// out[c][r] = x[r][c], 8 x 8.
TS_INLINE void transpose_tile(const float* x, size_t ld, float* out, size_t out_ld) {
  __m256 a[8], b[8];
  for (int i = 0; i < 8; ++i) a[i] = _mm256_loadu_ps(x + i * ld);
  for (int i = 0; i < 8; i += 2) {
    b[i] = _mm256_unpacklo_ps(a[i], a[i + 1]);
    b[i + 1] = _mm256_unpackhi_ps(a[i], a[i + 1]);
  }
  for (int i = 0; i < 8; i += 4) {
    a[i] = _mm256_shuffle_ps(b[i], b[i + 2], 0x44);
    a[i + 1] = _mm256_shuffle_ps(b[i], b[i + 2], 0xee);
    a[i + 2] = _mm256_shuffle_ps(b[i + 1], b[i + 3], 0x44);
    a[i + 3] = _mm256_shuffle_ps(b[i + 1], b[i + 3], 0xee);
  }
  for (int i = 0; i < 4; ++i) {
    _mm256_storeu_ps(out + i * out_ld, _mm256_permute2f128_ps(a[i], a[i + 4], 0x20));
    _mm256_storeu_ps(out + (i + 4) * out_ld, _mm256_permute2f128_ps(a[i], a[i + 4], 0x31));
  }
}
constexpr size_t kTile = 8;
#elif defined(TS_ISA_NEON)
TS_INLINE void transpose_tile(const float* x, size_t ld, float* out, size_t out_ld) {
  const float32x4x2_t a = vtrnq_f32(vld1q_f32(x), vld1q_f32(x + ld));
  const float32x4x2_t b = vtrnq_f32(vld1q_f32(x + 2 * ld), vld1q_f32(x + 3 * ld));
  for (int i = 0; i < 2; ++i) {
    vst1q_f32(out + i * out_ld, vcombine_f32(vget_low_f32(a.val[i]), vget_low_f32(b.val[i])));
    vst1q_f32(out + (i + 2) * out_ld,
              vcombine_f32(vget_high_f32(a.val[i]), vget_high_f32(b.val[i])));
  }
}
constexpr size_t kTile = 4;
#else
TS_INLINE void transpose_tile(const float* x, size_t ld, float* out, size_t out_ld) {
  for (size_t i = 0; i < 4; ++i)
    for (size_t j = 0; j < 4; ++j) std::memcpy(out + j * out_ld + i, x + i * ld + j, 4);
}
constexpr size_t kTile = 4;
#endif

// Moves bits, never values: a signalling NaN passes through loads, shuffles and stores. Panels of
// kPanel output columns keep the output's cache lines until they are full.
void transpose4(const void* from, size_t ld, void* to, size_t out_ld, size_t rows, size_t cols) {
  const float* x = static_cast<const float*>(from);
  float* out = static_cast<float*>(to);
  const size_t whole_rows = rows - rows % kTile, whole_cols = cols - cols % kTile;
  constexpr size_t kPanel = 64;
  for (size_t c0 = 0; c0 < whole_cols; c0 += kPanel)
    for (size_t r = 0; r < whole_rows; r += kTile)
      for (size_t c = c0; c < ts_min(c0 + kPanel, whole_cols); c += kTile)
        transpose_tile(x + c * ld + r, ld, out + r * out_ld + c, out_ld);
  for (size_t r = 0; r < rows; ++r)
    for (size_t c = r < whole_rows ? whole_cols : 0; c < cols; ++c)
      std::memcpy(out + r * out_ld + c, x + c * ld + r, 4);
}

void copy_rows(const char* x, ptrdiff_t stride, char* out, size_t bytes, size_t rows) {
  constexpr size_t kStep = 4 * kF32Lanes;
  for (size_t r = 0; r < rows; ++r, x += stride, out += bytes) {
    if (bytes % kStep != 0 || bytes > 4096) {
      std::memcpy(out, x, bytes);
      continue;
    }
    for (size_t i = 0; i < bytes; i += kStep)  // a call costs more than a short row
      v_store(reinterpret_cast<float*>(out + i), v_load(reinterpret_cast<const float*>(x + i)));
  }
}

}  // namespace
}  // namespace TS_ISA

namespace {
using namespace TS_ISA;
}

#define TS_RUN_f1(name) run1<name##_op>
#define TS_RUN_f2(name) run2<name##_op>
#define TS_RUN_f3(name) run3<name##_op>
#define TS_RUN_c2(name) run_compare<name##_op>
#define TS_RUN_m2(name) TS_MASK_##name
#define TS_RUN_w3(name) run_where
#define TS_MASK_mask_scale run_mask<true>
#define TS_MASK_masked_fill run_mask<false>
#define TS_EW_FN(name, arity, kind) TS_RUN_##kind##arity(name),

extern const ElementwiseTable TS_TABLE(elementwise);
const ElementwiseTable TS_TABLE(elementwise) = {{TS_EW_OPS(TS_EW_FN)}, transpose4, copy_rows};

}  // namespace tallystick
