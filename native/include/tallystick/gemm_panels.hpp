// B as panels: kPanelCols columns side by side, all their terms one after the other, panel after
// panel: element (k, j) at [j / kPanelCols][k][j % kPanelCols]. A product reads them in the order in
// which they lie in memory and packs nothing. Columns beyond the last one are zeros, which no result
// has a part of.
#pragma once
#include "families/gemm.hpp"
#include "tallystick/gemm_kernel.hpp"
#include "tallystick/gemm_widen.hpp"

namespace tallystick::TS_ISA {

constexpr size_t kPanelVectors = kPanelCols / kLanes;
// Floats by which a panel is fetched before a single row needs it.
constexpr size_t kRowAhead = 512;

static_assert(kPanelCols % kCols == 0, "a panel is whole tiles");

// --- one vector of a panel --------------------------------------------------------------------
struct Float32Panel {
  using Element = float;
  static TS_INLINE gv load(const float* p) { return gv_load(p); }
};

template <float (*kWide)(uint16_t)>
TS_INLINE gv widened(const uint16_t* p) {
  float x[kLanes];
  for (int i = 0; i < kLanes; ++i) x[i] = kWide(p[i]);
  return gv_load(x);
}

struct Bf16Panel {
  using Element = uint16_t;
  static TS_INLINE gv load(const uint16_t* p) {
#if defined(TS_ISA_AVX512)
    const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
#elif defined(TS_ISA_AVX2)
    const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
#else
    return widened<wide_bf16>(p);
#endif
  }
};

struct F16Panel {
  using Element = uint16_t;
  static TS_INLINE gv load(const uint16_t* p) {
#if defined(TS_ISA_AVX512)
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
#else
    return widened<wide_f16>(p);
#endif
  }
};

// --- one row of A -----------------------------------------------------------------------------
// G panels side by side, `step` elements apart: the row's results for their columns.
template <class Panel, size_t G>
TS_INLINE void panel_row(const float* a, ptrdiff_t a_step, const typename Panel::Element* b,
                         size_t step, size_t terms, float* out) {
  constexpr size_t kAhead = kRowAhead * sizeof(float) / sizeof(typename Panel::Element);
  constexpr size_t kLineElements = kLine * sizeof(float) / sizeof(typename Panel::Element);
  gv total[G][kPanelVectors];
  for (size_t k0 = 0; k0 < terms; k0 += kChunk) {
    const size_t end = ts_min(k0 + kChunk, terms);
    gv acc[G][kPanelVectors];
    TS_UNROLL for (size_t g = 0; g < G; ++g) {
      TS_UNROLL for (size_t v = 0; v < kPanelVectors; ++v) acc[g][v] = gv_zero();
    }
    for (size_t k = k0; k < end; ++k) {
      const gv by = gv_set(a[static_cast<ptrdiff_t>(k) * a_step]);
      TS_UNROLL for (size_t g = 0; g < G; ++g) {
        const typename Panel::Element* x = b + g * step + k * kPanelCols;
        TS_UNROLL for (size_t l = 0; l < kPanelCols; l += kLineElements)
            __builtin_prefetch(x + kAhead + l, 0, 3);
        TS_UNROLL for (size_t v = 0; v < kPanelVectors; ++v)
            acc[g][v] = gv_fma(by, Panel::load(x + v * kLanes), acc[g][v]);
      }
    }
    TS_UNROLL for (size_t g = 0; g < G; ++g) {
      TS_UNROLL for (size_t v = 0; v < kPanelVectors; ++v)
          total[g][v] = k0 == 0 ? acc[g][v] : gv_add(total[g][v], acc[g][v]);
    }
  }
  TS_UNROLL for (size_t g = 0; g < G; ++g) {
    TS_UNROLL for (size_t v = 0; v < kPanelVectors; ++v)
        gv_store(out + g * kPanelCols + v * kLanes, finish(total[g][v], kLast));
  }
}

// Columns 0 to n of panels at b.
template <class Panel>
static void row_of_panels(const float* a, ptrdiff_t a_step, const typename Panel::Element* b,
                          size_t terms, size_t n, float* out) {
  constexpr size_t kTwo = 2 * kPanelCols;
  const size_t step = terms * kPanelCols;
  size_t j = 0;
  for (; j + kTwo <= n; j += kTwo, b += 2 * step)
    panel_row<Panel, 2>(a, a_step, b, step, terms, out + j);
  for (; j < n; j += kPanelCols, b += step) {
    if (j + kPanelCols <= n) {
      panel_row<Panel, 1>(a, a_step, b, step, terms, out + j);
      continue;
    }
    float last[kPanelCols];
    panel_row<Panel, 1>(a, a_step, b, step, terms, last);
    for (size_t i = j; i < n; ++i) out[i] = last[i - j];
  }
}

}  // namespace tallystick::TS_ISA
