// One row of A times B (NUMERICS 2.1, 2.2). B is read once and never packed: there is no second
// row to reuse it for.
#pragma once
#include "tallystick/gemm_kernel.hpp"

namespace tallystick::TS_ISA {

// Columns whose partials are kept at once.
constexpr size_t kThinCols = 2048;

TS_INLINE void thin_total(const float* partial, size_t n, bool first, bool last, float* out) {
  for (size_t j = 0; j < n; ++j) {
    const float total = first ? partial[j] : out[j] + partial[j];
    out[j] = last ? planted(canonical_nan(total)) : total;
  }
}

// --- rows of B contiguous: it is read in the order it lies in memory ----------------------------

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
      thin_total(partial, w, k0 == 0, end == kt, out + j0);
    }
  }
}

// --- columns of B contiguous: squares are transposed in the nearest cache and used at once --------
constexpr size_t kThinGroups = 2, kThinDots = kThinGroups * kLanes;

// out[0..n) = a[0..kt) times columns of b, s_x elements apart.
static void thin_dots(const float* a, ptrdiff_t a_step, const float* b, ptrdiff_t s_x, size_t kt,
                      size_t n, float* out) {
  float square[kThinGroups][kLanes * kLanes], partial[kThinDots];
  ptrdiff_t row[kThinGroups][kLanes];
  for (size_t j0 = 0; j0 < n; j0 += kThinDots) {
    const size_t w = ts_min(n - j0, kThinDots);
    // Columns beyond n repeat the last one and are dropped.
    for (size_t j = 0; j < kThinDots; ++j)
      row[j / kLanes][j % kLanes] = static_cast<ptrdiff_t>(j0 + ts_min(j, w - 1)) * s_x;
    for (size_t k0 = 0; k0 < kt; k0 += kChunk) {
      const size_t end = ts_min(k0 + kChunk, kt);
      gv acc[kThinGroups];
      TS_UNROLL for (size_t g = 0; g < kThinGroups; ++g) acc[g] = gv_zero();
      size_t k = k0;
      for (; k + kLanes <= end; k += kLanes) {
        for (size_t g = 0; g < kThinGroups; ++g) gv_transpose(b + k, row[g], square[g], kLanes);
        const float* ak = a + static_cast<ptrdiff_t>(k) * a_step;
        TS_UNROLL for (int t = 0; t < kLanes; ++t) {
          const gv at = gv_set(ak[t * a_step]);
          TS_UNROLL for (size_t g = 0; g < kThinGroups; ++g)
              acc[g] = gv_fma(at, gv_load(square[g] + t * kLanes), acc[g]);
        }
      }
      TS_UNROLL for (size_t g = 0; g < kThinGroups; ++g) gv_store(partial + g * kLanes, acc[g]);
      for (; k < end; ++k) {
        const float ak = a[static_cast<ptrdiff_t>(k) * a_step];
        for (size_t j = 0; j < kThinDots; ++j)
          partial[j] = fma1(ak, b[row[j / kLanes][j % kLanes] + static_cast<ptrdiff_t>(k)],
                            partial[j]);
      }
      thin_total(partial, w, k0 == 0, end == kt, out + j0);
    }
  }
}

}  // namespace tallystick::TS_ISA
