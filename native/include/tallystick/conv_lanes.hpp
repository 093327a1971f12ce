// Sums of many small groups of channels (NUMERICS 2.6, 2.7): a vector holds the same element of as
// many groups as it has lanes. Every lane is a sum of its own, so no term changes its place.
#pragma once
#include "tallystick/parts.hpp"
#include "tallystick/short_copies.hpp"

namespace tallystick::TS_ISA {

// --- micro-kernel ------------------------------------------------------------------------------
// Terms of one chunk for R rows and P columns: column p's term k is x[p] + at[k]. The caller's rows
// are the channels and its columns the places of a plane, or (weight gradient) the weights.
constexpr size_t kTileRows = 4, kTileCols = 10;
constexpr size_t kTileWidth[kTileRows + 1] = {0, 10, 6, 4, 3};

// The sum goes on from the stored partial, and the new partial is stored.
constexpr int kCarry = 4;

struct LaneTile {
  const float* a;             // kLanes values of each row and term, [term][row][lane]
  const ptrdiff_t* at;
  size_t terms;
  const float* x[kTileCols];
  float* out[kTileCols];
  size_t out_step;            // from one row to the next
  const float* bias;          // kLanes of each row, added after the last chunk; or null
  int flags;
};

template <int R, int P>
TS_INLINE void lane_terms(const LaneTile& t, gv (&acc)[R][P]) {
  const float* x[P];
  TS_UNROLL for (int p = 0; p < P; ++p) x[p] = t.x[p];
  const float* a = t.a;
  const ptrdiff_t *at = t.at, *end = at + t.terms;
  for (; at != end; ++at, a += R * kLanes) {
    const ptrdiff_t d = *at;
    // What is used more than once is kept: 12 sums, 3 operands and 1 in passing are 16 registers.
    if (R <= P) {
      gv rows[R];
      TS_UNROLL for (int r = 0; r < R; ++r) rows[r] = gv_load(a + r * kLanes);
      TS_UNROLL for (int p = 0; p < P; ++p) {
        const gv value = gv_load(x[p] + d);
        TS_UNROLL for (int r = 0; r < R; ++r) acc[r][p] = gv_fma(rows[r], value, acc[r][p]);
      }
    } else {
      gv values[P];
      TS_UNROLL for (int p = 0; p < P; ++p) values[p] = gv_load(x[p] + d);
      TS_UNROLL for (int r = 0; r < R; ++r) {
        const gv row = gv_load(a + r * kLanes);
        TS_UNROLL for (int p = 0; p < P; ++p) acc[r][p] = gv_fma(row, values[p], acc[r][p]);
      }
    }
  }
}

template <int R, int P>
TS_INLINE void lane_body(const LaneTile& t) {
  gv acc[R][P];
  if ((t.flags & kCarry) && !(t.flags & kFirst)) {
    TS_UNROLL for (int r = 0; r < R; ++r) {
      TS_UNROLL for (int p = 0; p < P; ++p) acc[r][p] = gv_load(t.out[p] + r * t.out_step);
    }
  } else {
    TS_UNROLL for (int r = 0; r < R; ++r) {
      TS_UNROLL for (int p = 0; p < P; ++p) acc[r][p] = gv_zero();
    }
  }
  lane_terms<R, P>(t, acc);
  // Copies: a store could change what `t` holds, for all the compiler knows.
  const int flags = t.flags;
  const size_t out_step = t.out_step;
  const float* bias = t.bias;
  TS_UNROLL for (int p = 0; p < P; ++p) {
    float* to = t.out[p];
    TS_UNROLL for (int r = 0; r < R; ++r) {
      gv total = acc[r][p];
      if (!(flags & (kCarry | kFirst))) total = gv_add(gv_load(to + r * out_step), total);
      if (flags & kLast) {
        if (bias != nullptr) total = gv_add(total, gv_load(bias + r * kLanes));
        total = finish(total, flags);
      }
      gv_store(to + r * out_step, total);
    }
  }
}

using LaneTileFn = void (*)(const LaneTile& t);

template <int R, int P>
static void lane_tile(const LaneTile& t) { lane_body<R, P>(t); }

#if defined(TS_ISA_SCALAR) && defined(__x86_64__)
template <int R, int P>
__attribute__((target("fma"))) static void lane_tile_hw(const LaneTile& t) { lane_body<R, P>(t); }
#endif

struct LaneTileTable {
  LaneTileFn fn[kTileRows + 1][kTileCols + 1];
};

#define TS_LANE_3(F, R) nullptr, &F<R, 1>, &F<R, 2>, &F<R, 3>
#define TS_LANE_6(F, R) TS_LANE_3(F, R), &F<R, 4>, &F<R, 5>, &F<R, 6>
#define TS_LANE_TILES(F)                                                           \
  {{},                                                                             \
   {TS_LANE_6(F, 1), &F<1, 7>, &F<1, 8>, &F<1, 9>, &F<1, 10>}, {TS_LANE_6(F, 2)}, \
   {TS_LANE_3(F, 3), &F<3, 4>}, {TS_LANE_3(F, 4)}}

static const LaneTileTable kLaneTiles = {TS_LANE_TILES(lane_tile)};
#if defined(TS_ISA_SCALAR) && defined(__x86_64__)
static const LaneTileTable kLaneTilesHw = {TS_LANE_TILES(lane_tile_hw)};
static const LaneTileTable& lane_tiles() {
  static const bool hw = __builtin_cpu_supports("fma");
  return hw ? kLaneTilesHw : kLaneTiles;
}
#else
static const LaneTileTable& lane_tiles() { return kLaneTiles; }
#endif

// --- into lanes and out of them -----------------------------------------------------------------
// n adjacent elements of kLanes planes, lane l's at src[row[l] + i], go to places `step` apart. They
// begin at column x of rows of `width` columns; a new row begins `gap` after the end of the last.
static void lanes_in(const float* src, const ptrdiff_t row[kLanes], size_t n, size_t x,
                     size_t width, float* to, size_t step, size_t gap) {
  float square[kLanes * kLanes], turned[kLanes * kLanes];
  ptrdiff_t own[kLanes];
  for (ptrdiff_t l = 0; l < kLanes; ++l) own[l] = l * kLanes;
  for (size_t i = 0; i < n;) {
    const size_t here = ts_min(n - i, size_t(kLanes));
    if (here == size_t(kLanes) && x + kLanes <= width) {
      gv_transpose(src + i, row, to, step);
      to += kLanes * step;
      x += kLanes;
      if (x == width) {
        x = 0;
        to += gap;
      }
    } else {
      if (here == size_t(kLanes)) {
        gv_transpose(src + i, row, turned, kLanes);
      } else {
        zero_floats(square, kLanes * kLanes);
        for (int l = 0; l < kLanes; ++l)
          copy_floats(square + l * kLanes, src + i + row[l], here);
        gv_transpose(square, own, turned, kLanes);
      }
      for (size_t j = 0; j < here; ++j) {
        gv_store(to, gv_load(turned + j * kLanes));
        to += step;
        if (++x == width) {
          x = 0;
          to += gap;
        }
      }
    }
    i += here;
  }
}

// The first `lanes` lanes of n adjacent vectors go to their planes, `plane_step` apart.
static void lanes_out(const float* from, size_t n, size_t lanes, float* to, size_t plane_step) {
  float turned[kLanes * kLanes];
  ptrdiff_t row[kLanes];
  for (ptrdiff_t l = 0; l < kLanes; ++l) row[l] = l * kLanes;
  size_t i = 0;
  if (lanes == size_t(kLanes)) {
    for (; i + kLanes <= n; i += kLanes)
      gv_transpose(from + i * kLanes, row, to + i, plane_step);
  }
  for (; i < n; i += kLanes) {
    const size_t here = ts_min(n - i, size_t(kLanes));
    for (size_t l = 0; l < size_t(kLanes); ++l)
      row[l] = static_cast<ptrdiff_t>(ts_min(l, here - 1) * kLanes);
    gv_transpose(from + i * kLanes, row, turned, kLanes);
    for (size_t l = 0; l < lanes; ++l)
      copy_floats(to + i + l * plane_step, turned + l * kLanes, here);
  }
}

}  // namespace tallystick::TS_ISA
