#include "families/elementwise.hpp"

#include "tallystick/pointwise.hpp"

namespace tallystick {
namespace TS_ISA {
namespace {

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

// f(register of binary32, register of bools) for every stretch of n elements.
template <class F>
TS_INLINE void each_masked(const EwOperand* in, void* out, size_t n, const F& f) {
  float* o = static_cast<float*>(out);
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
      const f32m on = left == kF32Lanes ? m_load(k + j) : m_load_n(k + j, left);
      v_store_any(o + i + j, v_planted(f(v_load_any(x + j, left), on)), left);
    }
  }
}
template <class Op>
void run_mask(const EwOperand* in, void* out, size_t n, const float* p) {
  const f32v p0 = v_set1(p[0]);
  each_masked(in, out, n, [=](f32v a, f32m on) TS_LAMBDA { return v_canon(Op::f(a, on, p0)); });
}
// masked_fill and where move bits (clause 9) and canonicalise no value.
void run_fill(const EwOperand* in, void* out, size_t n, const float* p) {
  const f32v p0 = v_set1(p[0]);
  each_masked(in, out, n, [=](f32v a, f32m on) TS_LAMBDA { return v_blend(on, p0, a); });
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
#define TS_RUN_m2(name) run_mask<name##_op>
#define TS_RUN_b2(name) run_fill
#define TS_RUN_w3(name) run_where
#define TS_EW_FN(name, arity, kind, work) TS_RUN_##kind##arity(name),

TS_DEFINE_TABLE(ElementwiseTable, elementwise) = {{TS_EW_OPS(TS_EW_FN)}, transpose4, copy_rows};

}  // namespace tallystick
