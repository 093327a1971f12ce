// Quantised weights as panels (NUMERICS 19): byte i of the blocks of kPanelCols columns side by side,
// so that a scale is a vector, and so are the numbers of one term. The bytes are the file's, in
// another order: [panel][block of a row][byte of the block][column].
//
// A block is met in stretches of 32 terms, and a stretch in halves of 16, whose numbers have one scale
// each. Each product and each sum is rounded by itself. A NaN may keep another pattern here: the
// product makes that of its result canonical.
#pragma once
#include <utility>

#include "families/quantised.hpp"
#include "tallystick/gemm_panels.hpp"
#include "tallystick/quantised_vec.hpp"

namespace tallystick::TS_ISA {

// The scalar path has a vector for each column: written out, they would be megabytes.
#if defined(TS_ISA_SCALAR)
#define TS_VECTORS
#define TS_TERMS
#else
#define TS_VECTORS TS_UNROLL
#define TS_TERMS TS_UNROLL
#endif

constexpr size_t kStretch = 32, kHalf = 16;

// The numbers of 16 terms in the columns of one vector are by·q + plus.
struct Factors {
  gv by, plus;
};

// Byte i of a block, in the columns of vector v.
TS_INLINE const uint8_t* byte_at(const uint8_t* block, size_t i, size_t v) {
  return block + i * kPanelCols + v * kLanes;
}

TS_INLINE gv half_at(const uint8_t* block, size_t i, size_t v) {
  return iv_half(iv_or(iv_bytes(byte_at(block, i, v)),
                       iv_up(iv_bytes(byte_at(block, i + 1, v)), 8)));
}

// --- formats of 32 (19.3) ---------------------------------------------------------------------
// A format says the factors of half h of stretch s of a block, and the integers of its term j, which
// is i beyond a multiple of 8. kAdds: there is something to add. Shifts depend on s mod kKinds alone,
// which is `Kind`, known to the compiler. Every integer is one of eight bits with a sign.

// The quants begin at byte P, the fifth bits at F, 0 without. Every integer loses Shift.
template <size_t P, size_t F, int Shift, bool Adds>
struct OfFour {
  static constexpr bool kAdds = Adds;
  static constexpr size_t kKinds = 1;
  static TS_INLINE Factors factors(const uint8_t* b, size_t, size_t, size_t v) {
    return {half_at(b, 0, v), Adds ? half_at(b, 2, v) : gv_zero()};
  }
  template <size_t Kind>
  static TS_INLINE bv quants(const uint8_t* b, size_t, size_t h, size_t j, size_t i) {
    bv q = bv_part(bv_load(byte_at(b, P + j, 0)), h == 0 ? 0 : -4, 15);
    if (F != 0) {
      const bv row = bv_load(byte_at(b, F + 2 * h + j / 8, 0));
      q = bv_or(q, bv_part(row, 4 - static_cast<int>(i), 16));
    }
    return Shift == 0 ? q : bv_less(q, Shift);
  }
};

struct OfEight {
  static constexpr bool kAdds = false;
  static constexpr size_t kKinds = 1;
  static TS_INLINE Factors factors(const uint8_t* b, size_t, size_t, size_t v) {
    return {half_at(b, 0, v), gv_zero()};
  }
  // As they lie in memory.
  template <size_t Kind>
  static TS_INLINE const uint8_t* quants(const uint8_t* b, size_t, size_t h, size_t j, size_t) {
    return byte_at(b, 2 + kHalf * h + j, 0);
  }
};

// --- formats of 256 (19.4) --------------------------------------------------------------------
// The quants of q4_k and q5_k begin at byte P, the fifth bits at F, 0 without.
template <size_t P, size_t F>
struct Scaled {
  static constexpr bool kAdds = true;
  static constexpr size_t kKinds = F == 0 ? 2 : 8;
  static TS_INLINE Factors factors(const uint8_t* b, size_t s, size_t, size_t v) {
    iv scale, least;
    const iv packed = iv_bytes(byte_at(b, 8 + s, v));
    if (s < 4) {
      scale = iv_and(iv_bytes(byte_at(b, 4 + s, v)), 63);
      least = iv_and(packed, 63);
    } else {
      const iv upper_scale = iv_down(iv_bytes(byte_at(b, s, v)), 6);
      const iv upper_least = iv_down(iv_bytes(byte_at(b, 4 + s, v)), 6);
      scale = iv_or(iv_and(packed, 15), iv_up(upper_scale, 4));
      least = iv_or(iv_down(packed, 4), iv_up(upper_least, 4));
    }
    const gv minimum = gv_mul(half_at(b, 2, v), iv_float(least));
    return {gv_mul(half_at(b, 0, v), iv_float(scale)), gv_negative(minimum)};
  }
  template <size_t Kind>
  static TS_INLINE bv quants(const uint8_t* b, size_t s, size_t h, size_t j, size_t) {
    const size_t row = kHalf * h + j;
    const bv q = bv_part(bv_load(byte_at(b, P + 32 * (s / 2) + row, 0)), Kind % 2 ? -4 : 0, 15);
    if (F == 0) return q;
    return bv_or(q, bv_part(bv_load(byte_at(b, F + row, 0)), 4 - static_cast<int>(Kind), 16));
  }
};

struct OfSix {
  static constexpr bool kAdds = false;
  static constexpr size_t kKinds = 4;
  static TS_INLINE Factors factors(const uint8_t* b, size_t s, size_t h, size_t v) {
    const iv scale = iv_signed(byte_at(b, 192 + 2 * s + h, v), 0);
    return {gv_mul(half_at(b, 208, v), iv_float(scale)), gv_zero()};
  }
  template <size_t Kind>
  static TS_INLINE bv quants(const uint8_t* b, size_t s, size_t h, size_t j, size_t) {
    const size_t part = s / 4, row = kHalf * h + j;  // parts of 128 numbers
    const bv low = bv_load(byte_at(b, 64 * part + 32 * (Kind % 2) + row, 0));
    const bv high = bv_load(byte_at(b, 128 + 32 * part + row, 0));
    return bv_less(bv_or(bv_part(low, Kind < 2 ? 0 : -4, 15),
                         bv_part(high, 4 - 2 * static_cast<int>(Kind), 48)), 32);
  }
};

// --- stretches --------------------------------------------------------------------------------
// Calls use(term of the stretch, vector, numbers) for every number of stretch s of a block.
template <class Format, size_t Kind = 0, class Use>
TS_INLINE void each_number(const uint8_t* block, size_t s, Use&& use) {
  if constexpr (Kind + 1 < Format::kKinds) {
    if (s % Format::kKinds != Kind)
      return each_number<Format, Kind + 1>(block, s, std::forward<Use>(use));
  }
  TS_UNROLL for (size_t h = 0; h < 2; ++h) {
    Factors f[kPanelVectors];
    TS_VECTORS for (size_t v = 0; v < kPanelVectors; ++v) f[v] = Format::factors(block, s, h, v);
    for (size_t j0 = 0; j0 < kHalf; j0 += 8) {
      TS_TERMS for (size_t i = 0; i < 8; ++i) {
        const size_t j = j0 + i;
        const auto q = Format::template quants<Kind>(block, s, h, j, i);
        TS_VECTORS for (size_t v = 0; v < kPanelVectors; ++v) {
          const gv x = gv_mul(f[v].by, iv_float(iv_signed(q, v)));
          use(kHalf * h + j, v, Format::kAdds ? gv_add(x, f[v].plus) : x);
        }
      }
    }
  }
}

// Columns of one panel, of which `block` is the first block, times a row of A.
template <class Format, size_t Stretches>
static void quantised_row(const float* a, ptrdiff_t a_step, const uint8_t* block, size_t size,
                          size_t terms, float* out) {
  constexpr size_t kAheadBytes = kRowAhead * sizeof(float), kLineBytes = kLine * sizeof(float);
  const size_t part = size * kPanelCols / Stretches;  // bytes that a stretch has
  gv total[kPanelVectors], acc[kPanelVectors];
  TS_VECTORS for (size_t v = 0; v < kPanelVectors; ++v) total[v] = acc[v] = gv_zero();
  for (size_t k = 0, s = 0; k < terms; k += kStretch) {
    if (k % kChunk == 0) {
      TS_VECTORS for (size_t v = 0; v < kPanelVectors; ++v) acc[v] = gv_zero();
    }
    for (size_t i = 0; i < part; i += kLineBytes)
      __builtin_prefetch(block + s * part + kAheadBytes + i, 0, 3);
    const float* ak = a + static_cast<ptrdiff_t>(k) * a_step;
    each_number<Format>(block, s, [&](size_t j, size_t v, gv x) {
      acc[v] = gv_fma(gv_set(ak[static_cast<ptrdiff_t>(j) * a_step]), x, acc[v]);
    });
    if (++s == Stretches) {
      s = 0;
      block += size * kPanelCols;
    }
    if ((k + kStretch) % kChunk != 0 && k + kStretch != terms) continue;
    TS_VECTORS for (size_t v = 0; v < kPanelVectors; ++v)
        total[v] = k < kChunk ? acc[v] : gv_add(total[v], acc[v]);
  }
  TS_VECTORS for (size_t v = 0; v < kPanelVectors; ++v)
      gv_store(out + v * kLanes, finish(total[v], kLast));
}

// Terms k to k + kc of the panel whose first block is `block`, as rows of kPanelCols numbers.
template <class Format, size_t Stretches>
static void quantised_chunk(const uint8_t* block, size_t size, size_t k, size_t kc, float* out) {
  block += k / (kStretch * Stretches) * size * kPanelCols;
  size_t s = k / kStretch % Stretches;
  for (size_t t = 0; t < kc; t += kStretch, out += kStretch * kPanelCols) {
    each_number<Format>(block, s, [&](size_t j, size_t v, gv x) {
      gv_store(out + j * kPanelCols + v * kLanes, x);
    });
    if (++s == Stretches) {
      s = 0;
      block += size * kPanelCols;
    }
  }
}

struct PanelKernels {
  void (*row)(const float* a, ptrdiff_t a_step, const uint8_t* block, size_t size, size_t terms,
              float* out);
  void (*chunk)(const uint8_t* block, size_t size, size_t k, size_t kc, float* out);
};

template <class Format, size_t Stretches>
constexpr PanelKernels kernels_of() {
  return {&quantised_row<Format, Stretches>, &quantised_chunk<Format, Stretches>};
}

TS_INLINE PanelKernels panel_kernels(BlockFormat format) {
  switch (format) {
    case BlockFormat::q4_0: return kernels_of<OfFour<2, 0, 8, false>, 1>();
    case BlockFormat::q4_1: return kernels_of<OfFour<4, 0, 0, true>, 1>();
    case BlockFormat::q5_0: return kernels_of<OfFour<6, 2, 16, false>, 1>();
    case BlockFormat::q5_1: return kernels_of<OfFour<8, 4, 0, true>, 1>();
    case BlockFormat::q8_0: return kernels_of<OfEight, 1>();
    case BlockFormat::q4_k: return kernels_of<Scaled<16, 0>, 8>();
    case BlockFormat::q5_k: return kernels_of<Scaled<48, 16>, 8>();
    case BlockFormat::q6_k: return kernels_of<OfSix, 8>();
  }
  return {};
}

#undef TS_VECTORS
#undef TS_TERMS

}  // namespace tallystick::TS_ISA
