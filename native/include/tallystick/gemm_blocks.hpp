// What every driver of the dot class is made of (NUMERICS 2): the packed block of the operand that
// threads share, its panels of rows, and one row of register tiles.
#pragma once
#include "families/gemm.hpp"
#include "tallystick/gemm_kernel.hpp"
#include "tallystick/gemm_pack.hpp"
#include "tallystick/gemm_scratch.hpp"
#include "tallystick/parts.hpp"
#include "tallystick/ts_base.hpp"
#include "thread_pool.hpp"

namespace tallystick::TS_ISA {

// Rows or columns of the shared operand that are packed at once, and the most floats for them. A
// larger shared block costs more in evicted cache than it saves.
constexpr size_t kSharedMax = 2048, kSharedFloats = size_t(4) << 20;
constexpr size_t kStripCols = 256;
// Below this many multiply-adds, waking another thread costs more than it saves.
constexpr double kSerialWork = 200e3;

static_assert(kChunk == kChunkTerms, "one chunk for products and convolutions");

static thread_local Scratch shared_scratch, strip_scratch;

// Rows in panels of nearly equal height: one short panel would waste its kernel's latency.
struct RowPanels : Parts {
  explicit RowPanels(size_t rows) : Parts(rows, kRows) {}
};

// --- chunks ------------------------------------------------------------------------------------
TS_INLINE size_t chunk_count(const GemmProblem& p) {
  return p.chunk_ends == nullptr ? ceil_div(p.k, kChunk) : p.chunk_count;
}
TS_INLINE size_t chunk_begin(const GemmProblem& p, size_t c) {
  if (p.chunk_ends == nullptr) return c * kChunk;
  return c == 0 ? 0 : p.chunk_ends[c - 1];
}
TS_INLINE size_t chunk_end(const GemmProblem& p, size_t c) {
  return p.chunk_ends == nullptr ? ts_min((c + 1) * kChunk, p.k) : p.chunk_ends[c];
}

TS_INLINE size_t padded_cols(size_t n) { return ceil_div(n, kLanes) * kLanes; }

struct Run {
  const GemmProblem* p;
  const TileTable* tiles;
  ptrdiff_t b_step, out_step;
  bool share_a, direct;       // direct: B is read in its own place
  bool a_in_place;
  size_t x0, xn;              // block of the shared operand
  size_t c0, c1;              // chunks of the block
  size_t k0;                  // where the first of them begins
  float* shared;
  size_t strip, strips;       // of the other operand, per product
  size_t splits;              // parts the shared block is cut into
  size_t pack_groups, pack_runs;  // of panels and of chunks
  int failed;
};

static void epilogue(const GemmProblem& p, size_t i0, size_t rows, size_t j0, size_t cols,
                     float* out) {
  const GemmEpilogue& e = p.ep;
  for (size_t i = 0; i < rows; ++i) {
    float* row = out + static_cast<ptrdiff_t>(i) * p.ldc;
    const float* c = e.c == nullptr ? nullptr
                                    : e.c + static_cast<ptrdiff_t>(i0 + i) * e.c_rows +
                                          static_cast<ptrdiff_t>(j0) * e.c_cols;
    if (c != nullptr && e.c_cols == 1 && !e.scale_d && !e.scale_c) {
      for (size_t j = 0; j < cols; ++j) row[j] = canonical_nan(row[j] + c[j]);
      continue;
    }
    for (size_t j = 0; j < cols; ++j) {
      float d = row[j];
      if (e.scale_d) d = e.alpha * d;
      if (c != nullptr) {
        float term = c[static_cast<ptrdiff_t>(j) * e.c_cols];
        if (e.scale_c) term = e.beta * term;
        d = d + term;
      }
      row[j] = canonical_nan(d);
    }
  }
}

// One packed panel of A times columns j.. of B: whole panels, `b_panel` elements apart, or one that
// is narrower. The floats at `ahead` are read after this row of tiles.
TS_INLINE void run_tiles(const Run& r, const TileTable* tiles, const float* a, size_t i,
                         size_t rows, const float* b, size_t ldb, size_t b_panel, size_t j,
                         size_t cols, size_t k, size_t kc, float* out,
                         const float* ahead = nullptr, size_t ahead_floats = 0) {
  const GemmProblem& p = *r.p;
  const size_t panels = ceil_div(cols, kCols);
  TileRow t;
  t.a = a;
  t.lda = p.a.s_x;
  t.b = b;
  t.ldb = ldb;
  t.b_panel = b_panel;
  t.panels = panels;
  t.kc = kc;
  t.c = out + static_cast<ptrdiff_t>(i) * p.ldc + static_cast<ptrdiff_t>(j);
  t.ldc = p.ldc;
  t.n = static_cast<int>(ts_min(cols, size_t(kCols)));
  t.flags = (k == 0 ? kFirst : 0) | (k + kc == p.k ? kLast : 0);
  t.ahead = ahead;
  t.step = ceil_div(ahead_floats, panels);
  tiles->fn[rows][ceil_div(static_cast<size_t>(t.n), kLanes)](t);
  if ((t.flags & kLast) && p.ep.active) epilogue(p, i, rows, j, cols, t.c);
}

static void pack_rows_of_a(const GemmOperand& a, size_t i0, size_t rows, size_t p0, size_t p1,
                           size_t k, size_t kc, float* dst) {
  const RowPanels panels(rows);
  for (size_t p = p0; p < p1; ++p) {
    const size_t h = panels.size(p);
    pack_panel(a, i0 + panels.begin(p), h, h, k, kc, dst + panels.begin(p) * kc);
  }
}

TS_INLINE bool rows_together(const GemmOperand& b) {
  return b.kind == OperandKind::strided && b.k_inner == 0 && b.s_x == 1;
}

static void pack_cols_of_b(const GemmOperand& b, size_t j0, size_t cols, size_t q0, size_t q1,
                           size_t k, size_t kc, float* dst) {
  size_t q = q0;
  if (rows_together(b)) {
    const float* src = b.data + static_cast<ptrdiff_t>(k) * b.s_k + static_cast<ptrdiff_t>(j0);
    for (; q + kTogether <= ts_min(q1, cols / kCols); q += kTogether)
      pack_rows_together(src + q * kCols, b.s_k, kc, dst + q * kCols * kc);
  }
  for (; q < q1; ++q) {
    const size_t j = q * kCols, w = ts_min(cols - j, size_t(kCols));
    pack_panel(b, j0 + j, w, padded_cols(w), k, kc, dst + j * kc);
  }
}

// Task: one group of panels of the shared block, in one run of chunks. A panel's chunks follow each
// other, so that an operand whose terms are adjacent is read in the order it lies in memory.
static void pack_shared_task(void* ctx, size_t t) {
  const Run& r = *static_cast<const Run*>(ctx);
  const GemmProblem& p = *r.p;
  const size_t run = t / r.pack_groups, group = t % r.pack_groups;
  const size_t c0 = r.c0 + (r.c1 - r.c0) * run / r.pack_runs;
  const size_t c1 = r.c0 + (r.c1 - r.c0) * (run + 1) / r.pack_runs;
  const size_t step = !r.share_a && rows_together(p.b) ? kTogether : 1;
  const size_t n = r.share_a ? RowPanels(r.xn).count : ceil_div(r.xn, kCols);
  const size_t steps = ceil_div(n, step);
  const size_t s1 = steps * (group + 1) / r.pack_groups;
  for (size_t s = steps * group / r.pack_groups; s < s1; ++s) {
    const size_t first = s * step, end = ts_min(first + step, n);
    for (size_t c = c0; c < c1; ++c) {
      const size_t k = chunk_begin(p, c), kc = chunk_end(p, c) - k;
      if (r.share_a) {
        pack_rows_of_a(p.a, r.x0, r.xn, first, end, k, kc, r.shared + (k - r.k0) * r.xn);
      } else {
        pack_cols_of_b(p.b, r.x0, r.xn, first, end, k, kc,
                       r.shared + (k - r.k0) * padded_cols(r.xn));
      }
    }
  }
}

// Packs the block's chunks of the shared operand. False where there is no memory for them.
static bool pack_shared(Run& r, size_t terms, size_t width, size_t panels, size_t threads) {
  r.shared = shared_scratch.get(terms * width);
  if (r.shared == nullptr) return false;
  const size_t groups = threads == 1 ? 1 : threads * 4;
  r.pack_groups = ts_min(groups, panels);
  r.pack_runs = ts_min(ceil_div(groups, r.pack_groups), r.c1 - r.c0);
  const bool serial = threads == 1 || terms * width < 16384;
  for_tasks(r.pack_runs * r.pack_groups, pack_shared_task, &r, serial);
  return true;
}

// Where rows i.. of the block's shared A begin in a chunk.
TS_INLINE const float* panel_of_a(const Run& r, size_t i, size_t k, size_t kc) {
  if (!r.a_in_place) return r.shared + (k - r.k0) * r.xn + i * kc;
  return r.p->a.data + static_cast<ptrdiff_t>(r.x0 + i) * r.p->a.s_x + static_cast<ptrdiff_t>(k);
}

// A task's own memory; null, and the run has failed, where there is none.
template <class R>
static float* strip_room(R& run, size_t floats) {
  float* room = strip_scratch.get(floats);
  if (room == nullptr) __atomic_store_n(&run.failed, 1, __ATOMIC_RELAXED);
  return room;
}

// K = 0: every dot product is +0 (NUMERICS 2.2).
static void fill_empty(const GemmProblem& p, size_t count, ptrdiff_t out_step) {
  for (size_t c = 0; c < count; ++c) {
    float* out = p.out + static_cast<ptrdiff_t>(c) * out_step;
    for (size_t i = 0; i < p.m; ++i) {
      float* row = out + static_cast<ptrdiff_t>(i) * p.ldc;
      for (size_t j = 0; j < p.n; ++j) row[j] = planted(0.0f);
    }
    if (p.ep.active) epilogue(p, 0, p.m, 0, p.n, out);
  }
}

}  // namespace tallystick::TS_ISA
