// The micro-kernel: one chunk of one register tile (NUMERICS 2.1, 2.2).
#pragma once
#include "tallystick/gemm_vec.hpp"

namespace tallystick {
namespace TS_ISA {

// a: packed rows, a[k*R + i]; b: rows of `ldb` elements, of which V*kLanes are readable;
// c: R rows of `ldc`, of which n <= V*kLanes columns exist.
using TileFn = void (*)(const float* a, const float* b, size_t ldb, size_t kc, float* c,
                        ptrdiff_t ldc, int n, int flags);

template <int R, int V>
TS_INLINE void tile_body(const float* a, const float* b, size_t ldb, size_t kc, float* c,
                         ptrdiff_t ldc, int n, int flags) {
  gv acc[R][V];
  TS_UNROLL for (int i = 0; i < R; ++i) {
    TS_UNROLL for (int v = 0; v < V; ++v) acc[i][v] = gv_zero();
#if !defined(TS_ISA_SCALAR)
    gv_prefetch_write(c + i * ldc);
    gv_prefetch_write(c + i * ldc + n - 1);
#endif
  }
  for (size_t k = 0; k < kc; ++k) {
    gv bk[V];
    TS_UNROLL for (int v = 0; v < V; ++v) bk[v] = gv_load(b + v * kLanes);
    TS_UNROLL for (int i = 0; i < R; ++i) {
      const gv ai = gv_set(a[i]);
      TS_UNROLL for (int v = 0; v < V; ++v) acc[i][v] = gv_fma(ai, bk[v], acc[i][v]);
    }
    a += R;
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

template <int R, int V>
static void tile(const float* a, const float* b, size_t ldb, size_t kc, float* c, ptrdiff_t ldc,
                 int n, int flags) {
  tile_body<R, V>(a, b, ldb, kc, c, ldc, n, flags);
}

#if defined(TS_ISA_SCALAR) && defined(__x86_64__)
// Still one element a time, but with the machine's fma: libm's costs a call per term.
template <int R, int V>
__attribute__((target("fma"))) static void tile_hw(const float* a, const float* b, size_t ldb,
                                                   size_t kc, float* c, ptrdiff_t ldc, int n,
                                                   int flags) {
  tile_body<R, V>(a, b, ldb, kc, c, ldc, n, flags);
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

}  // namespace TS_ISA
}  // namespace tallystick
