// One row of A times a B whose rows are contiguous: B is read once, in the order it lies in
// memory, and the chunk's partials stay in the nearest cache (NUMERICS 2.1, 2.2).
#pragma once
#include "tallystick/gemm_kernel.hpp"

namespace tallystick {
namespace TS_ISA {

// Columns whose partials are kept at once.
constexpr size_t kThinCols = 2048;

// partial[j] <- fma(a[K-1], b[K-1][j], ... fma(a[0], b[0][j], partial[j])), K terms.
template <int K>
TS_INLINE void thin_terms(const float* a, ptrdiff_t a_step, const float* b, ptrdiff_t b_step,
                          size_t n, float* partial) {
  gv ak[K];
  TS_UNROLL for (int k = 0; k < K; ++k) ak[k] = gv_set(a[k * a_step]);
  size_t j = 0;
  for (; j + 2 * kLanes <= n; j += 2 * kLanes) {
    gv p0 = gv_load(partial + j), p1 = gv_load(partial + j + kLanes);
    TS_UNROLL for (int k = 0; k < K; ++k) {
      p0 = gv_fma(ak[k], gv_load(b + k * b_step + j), p0);
      p1 = gv_fma(ak[k], gv_load(b + k * b_step + j + kLanes), p1);
    }
    gv_store(partial + j, p0);
    gv_store(partial + j + kLanes, p1);
  }
  for (; j < n; ++j) {
    float p = partial[j];
    TS_UNROLL for (int k = 0; k < K; ++k) p = fma1(a[k * a_step], b[k * b_step + j], p);
    partial[j] = p;
  }
}

// out[0..n) = a[0..kt) times rows of b; `partial` has room for kThinCols floats.
static void thin_row(const float* a, ptrdiff_t a_step, const float* b, ptrdiff_t b_step, size_t kt,
                     size_t n, float* out, float* partial) {
  for (size_t j0 = 0; j0 < n; j0 += kThinCols) {
    const size_t w = ts_min(n - j0, kThinCols);
    for (size_t k0 = 0; k0 < kt; k0 += kChunk) {
      const size_t end = ts_min(k0 + kChunk, kt);
      for (size_t j = 0; j < w; ++j) partial[j] = 0.0f;
      size_t k = k0;
      for (; k + 4 <= end; k += 4)
        thin_terms<4>(a + static_cast<ptrdiff_t>(k) * a_step, a_step,
                      b + static_cast<ptrdiff_t>(k) * b_step + j0, b_step, w, partial);
      for (; k < end; ++k)
        thin_terms<1>(a + static_cast<ptrdiff_t>(k) * a_step, a_step,
                      b + static_cast<ptrdiff_t>(k) * b_step + j0, b_step, w, partial);
      const bool last = end == kt;
      for (size_t j = 0; j < w; ++j) {
        float total = k0 == 0 ? partial[j] : out[j0 + j] + partial[j];
        out[j0 + j] = last ? planted(canonical_nan(total)) : total;
      }
    }
  }
}

}  // namespace TS_ISA
}  // namespace tallystick
