// The micro-kernel: one chunk of one register tile (NUMERICS 2.1, 2.2).
#pragma once
#include "tallystick/gemm_vec.hpp"

namespace tallystick::TS_ISA {

// A row of tiles: one panel of A times panels of B, all as wide as the kernel.
struct TileRow {
  const float* a;        // a[k*R + i]; read in its own place: a[i*lda + k]
  ptrdiff_t lda;
  const float* b;        // rows of `ldb` elements, of which V*kLanes are readable
  size_t ldb, b_panel;   // b_panel: elements from one panel of B to the next
  size_t panels, kc;
  float* c;              // R rows of `ldc`
  ptrdiff_t ldc;
  int n;                 // columns of c that exist: V*kLanes, or fewer in a single panel
  int flags;
  const float* ahead;    // what is read next, fetched meanwhile: `step` floats a panel of B
  size_t step;
};
using TileFn = void (*)(const TileRow& t);

// How a kernel meets its operands: A packed; A in its own place; A packed, while `ahead` is fetched
// little by little: B comes from memory that no cache has.
enum class TileKind { packed, in_place, streaming };

template <int R, int V, TileKind Kind>
TS_INLINE void tile_body(const float* a, ptrdiff_t lda, const float* b, size_t ldb, size_t kc,
                         float* c, ptrdiff_t ldc, int n, int flags,
                         const float* ahead = nullptr, size_t ahead_floats = 0) {
  gv acc[R][V];
  TS_UNROLL for (int i = 0; i < R; ++i) {
    TS_UNROLL for (int v = 0; v < V; ++v) acc[i][v] = gv_zero();
#if !defined(TS_ISA_SCALAR)
    gv_prefetch_write(c + i * ldc);
    gv_prefetch_write(c + i * ldc + n - 1);
#endif
  }
  constexpr bool InPlace = Kind == TileKind::in_place;
  constexpr bool Streaming = Kind == TileKind::streaming;
  const size_t each = Streaming ? ceil_div(ahead_floats, kc) : 0;  // a line or two
  for (size_t k = 0; k < kc; ++k) {
    gv bk[V];
    if (Streaming) {
      gv_prefetch(ahead);
      if (each > kLine) gv_prefetch(ahead + kLine);
      ahead += each;
    }
    TS_UNROLL for (int v = 0; v < V; ++v) bk[v] = gv_load(b + v * kLanes);
    TS_UNROLL for (int i = 0; i < R; ++i) {
      const gv ai = gv_set(InPlace ? a[i * lda] : a[i]);
      TS_UNROLL for (int v = 0; v < V; ++v) acc[i][v] = gv_fma(ai, bk[v], acc[i][v]);
    }
    a += InPlace ? 1 : R;
    b += ldb;
  }
  if (n == V * kLanes) {
    TS_UNROLL for (int i = 0; i < R; ++i) {
      TS_UNROLL for (int v = 0; v < V; ++v) {
        float* p = c + i * ldc + v * kLanes;
        gv total = acc[i][v];
        if (!(flags & kFirst)) total = gv_add(gv_load(p), total);
        gv_store(p, finish(total, flags));
      }
    }
    return;
  }
  float tile[R * V * kLanes];
  TS_UNROLL for (int i = 0; i < R; ++i) {
    TS_UNROLL for (int v = 0; v < V; ++v) gv_store(tile + (i * V + v) * kLanes, acc[i][v]);
  }
  for (int i = 0; i < R; ++i) {
    for (int j = 0; j < n; ++j) {
      float total = tile[i * V * kLanes + j];
      float* p = c + i * ldc + j;
      if (!(flags & kFirst)) total = *p + total;
      *p = (flags & kLast) ? planted(canonical_nan(total)) : total;
    }
  }
}

template <int R, int V, TileKind Kind>
TS_INLINE void tile_row(const TileRow& t) {
  const float *b = t.b, *ahead = t.ahead;
  float* c = t.c;
  const size_t ldb = t.ldb, kc = t.kc;
  const ptrdiff_t ldc = t.ldc;
  const int flags = t.flags;
  if (t.n != V * kLanes)
    return tile_body<R, V, Kind>(t.a, t.lda, b, ldb, kc, c, ldc, t.n, flags, ahead, t.step);
  for (size_t q = t.panels; q != 0; --q) {
#if !defined(TS_ISA_SCALAR)
    if (Kind != TileKind::streaming)
      for (size_t f = 0; f < t.step; f += kLine) gv_prefetch_far(ahead + f);
#endif
    tile_body<R, V, Kind>(t.a, t.lda, b, ldb, kc, c, ldc, V * kLanes, flags, ahead, t.step);
    ahead += t.step;
    b += t.b_panel;
    c += V * kLanes;
  }
}

template <int R, int V>
static void tile(const TileRow& t) {
  tile_row<R, V, TileKind::packed>(t);
}

#if !defined(TS_ISA_SCALAR)
template <int R, int V>
static void tile_streaming(const TileRow& t) {
  tile_row<R, V, TileKind::streaming>(t);
}
#endif

#if defined(TS_ISA_AVX2)
template <int R, int V>
static void tile_in_place(const TileRow& t) {
  tile_row<R, V, TileKind::in_place>(t);
}
#endif

#if defined(TS_ISA_SCALAR) && defined(__x86_64__)
// Still one element a time, but with the machine's fma: libm's costs a call per term.
template <int R, int V>
__attribute__((target("fma"))) static void tile_hw(const TileRow& t) {
  tile_row<R, V, TileKind::packed>(t);
}
#endif

// --- micro-kernels by height and width -------------------------------------------------------
struct TileTable {
  TileFn fn[kRows + 1][kVecs + 1];
};

#if defined(TS_ISA_SCALAR)
#define TS_TILES(F, R) {nullptr, &F<R, 1>, &F<R, 2>, &F<R, 3>, &F<R, 4>}
#define TS_TILE_ROWS(F) {{}, TS_TILES(F, 1), TS_TILES(F, 2), TS_TILES(F, 3)}
#else
#define TS_TILES(F, R) {nullptr, &F<R, 1>, &F<R, 2>}
#define TS_TILES_6(F) {}, TS_TILES(F, 1), TS_TILES(F, 2), TS_TILES(F, 3), TS_TILES(F, 4), \
    TS_TILES(F, 5), TS_TILES(F, 6)
#define TS_TILES_8(F) TS_TILES_6(F), TS_TILES(F, 7), TS_TILES(F, 8)
#if defined(TS_ISA_AVX512)
#define TS_TILE_ROWS(F) {TS_TILES_8(F), TS_TILES(F, 9), TS_TILES(F, 10), TS_TILES(F, 11), \
    TS_TILES(F, 12), TS_TILES(F, 13), TS_TILES(F, 14)}
#elif defined(TS_ISA_AVX2)
#define TS_TILE_ROWS(F) {TS_TILES_6(F)}
#else
#define TS_TILE_ROWS(F) {TS_TILES_8(F)}
#endif
#endif

static const TileTable kTiles = {TS_TILE_ROWS(tile)};
#if defined(TS_ISA_SCALAR) && defined(__x86_64__)
static const TileTable kTilesHw = {TS_TILE_ROWS(tile_hw)};
static const TileTable& tiles() {
  static const bool hw = __builtin_cpu_supports("fma");
  return hw ? kTilesHw : kTiles;
}
#else
static const TileTable& tiles() { return kTiles; }
#endif

// Kernels for a B that is read from memory (TileKind::streaming).
static const TileTable& tiles_streaming() {
#if defined(TS_ISA_SCALAR)
  return tiles();
#else
  static const TileTable table = {TS_TILE_ROWS(tile_streaming)};
  return table;
#endif
}

// Kernels that read A's rows in their own place, or null: six rows leave registers for their
// addresses, more do not.
static const TileTable* tiles_in_place() {
#if defined(TS_ISA_AVX2)
  static const TileTable table = {TS_TILE_ROWS(tile_in_place)};
  return &table;
#else
  return nullptr;
#endif
}

}  // namespace tallystick::TS_ISA
