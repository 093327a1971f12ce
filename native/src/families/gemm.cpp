// The dot class (NUMERICS 2): one blocked driver for matrix products and convolutions.
//
// One operand (the smaller) is packed once for all threads, a block of its rows or columns at a
// time. The other is packed strip by strip, by the thread that consumes the strip. Threads share
// out strips of the output, so no result depends on their number (NUMERICS 1.8).
#if defined(__GNUC__) && !defined(__clang__)
// gcc 12 takes its own _mm512_undefined_ps() for a mistake of ours.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

#include "families/gemm.hpp"

#include "tallystick/gemm_kernel.hpp"
#include "tallystick/gemm_pack.hpp"
#include "tallystick/gemm_panels.hpp"
#include "tallystick/gemm_scratch.hpp"
#include "tallystick/gemm_thin.hpp"
#include "tallystick/gemm_widen.hpp"
#include "tallystick/parts.hpp"
#include "tallystick/ts_base.hpp"
#include "thread_pool.hpp"

namespace tallystick {
namespace TS_ISA {

// Rows or columns of the shared operand that are packed at once, and the most floats for them. A
// larger shared block costs more in evicted cache than it saves.
constexpr size_t kSharedMax = 2048, kSharedFloats = size_t(4) << 20;
constexpr size_t kStripCols = 256, kStripRows = 16 * kRows;
// Up to this many rows of A, B is read in its own place if its rows are contiguous.
constexpr size_t kDirectRows = 64;
// Up to this many columns of B, A is read in its own place. Its tiles are 3 % slower, but packing
// costs more.
constexpr size_t kDirectCols = 256;
// Floats: 128 rows of a chunk so far apart do not fit a cache of 64 sets and 8 ways.
constexpr ptrdiff_t kSetStride = 128;
// Below this many multiply-adds, waking another thread costs more than it saves.
constexpr double kSerialWork = 200e3;

static_assert(kChunk == kChunkTerms, "one chunk for products and convolutions");

// Floats of a strip of a stored B, and the factor for products of many rows, which pack their A
// again for each strip.
constexpr size_t kWideFloats = size_t(64) << 10, kWideMore = 4;

static thread_local Scratch shared_scratch, strip_scratch, wide_scratch;

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

static void strip_task_share_a(Run& r, size_t product, size_t strip, size_t split) {
  const GemmProblem& p = *r.p;
  const size_t j0 = strip * r.strip, cols = ts_min(r.strip, p.n - j0);
  GemmOperand b = p.b;
  b.data += static_cast<ptrdiff_t>(product) * r.b_step;
  float* out = p.out + static_cast<ptrdiff_t>(product) * r.out_step;
  float* packed = strip_room(r, padded_cols(cols) * kChunk);
  if (packed == nullptr) return;
  const RowPanels rows(r.xn);
  const size_t p0 = rows.count * split / r.splits, p1 = rows.count * (split + 1) / r.splits;
  const size_t n_panels = ceil_div(cols, kCols), whole = cols / kCols;
  if (p1 - p0 == 1) {
    // One panel of rows uses B once: each part is packed into the nearest cache, if at all.
    const size_t i = rows.begin(p0), height = rows.size(p0);
    for (size_t q = 0; q < n_panels; ++q) {
      const size_t j = q * kCols, w = ts_min(cols - j, size_t(kCols));
      const bool direct = r.direct && q < whole;
      for (size_t c = r.c0; c < r.c1; ++c) {
        const size_t k = chunk_begin(p, c), kc = chunk_end(p, c) - k;
        if (!direct) pack_panel(b, j0 + j, w, padded_cols(w), k, kc, packed);
        run_tiles(r, r.tiles, panel_of_a(r, i, k, kc), r.x0 + i, height,
                  direct ? b.data + static_cast<ptrdiff_t>(k) * b.s_k + static_cast<ptrdiff_t>(j0 + j)
                         : packed,
                  direct ? static_cast<size_t>(b.s_k) : padded_cols(w), 0, j0 + j, w, k, kc, out);
      }
    }
    return;
  }
  for (size_t c = r.c0; c < r.c1; ++c) {
    const size_t k = chunk_begin(p, c), kc = chunk_end(p, c) - k;
    pack_cols_of_b(b, j0, cols, r.direct ? whole : 0, n_panels, k, kc, packed);
    const float* b_here =
        b.data + static_cast<ptrdiff_t>(k) * b.s_k + static_cast<ptrdiff_t>(j0);
    const size_t edge = whole * kCols;
    for (size_t i = p0; i < p1; ++i) {
      const size_t at = rows.begin(i), height = rows.size(i);
      const float* panel = panel_of_a(r, at, k, kc);
      const size_t next = !r.a_in_place && i + 1 < p1 ? rows.size(i + 1) * kc : 0;
      if (whole != 0)
        run_tiles(r, r.tiles, panel, r.x0 + at, height, r.direct ? b_here : packed,
                  r.direct ? static_cast<size_t>(b.s_k) : size_t(kCols),
                  r.direct ? size_t(kCols) : kCols * kc, j0, edge, k, kc, out,
                  panel + height * kc, next);
      if (whole != n_panels)
        run_tiles(r, r.tiles, panel, r.x0 + at, height, packed + edge * kc,
                  padded_cols(cols - edge), 0, j0 + edge, cols - edge, k, kc, out);
    }
  }
}

// Rows of A in their own place times a B of few columns: each row is read once, in its order.
static void strip_task_rows_of_a(const Run& r, size_t i0, size_t height, size_t split) {
  const GemmProblem& p = *r.p;
  const RowPanels rows(height);
  const size_t n_panels = ceil_div(r.xn, kCols);
  const size_t q0 = n_panels * split / r.splits, q1 = n_panels * (split + 1) / r.splits;
  const size_t whole = ts_min(q1, r.xn / kCols), edge = whole * kCols;
  for (size_t i = 0; i < rows.count; ++i) {
    const size_t at = i0 + rows.begin(i), h = rows.size(i);
    for (size_t c = r.c0; c < r.c1; ++c) {
      const size_t k = chunk_begin(p, c), kc = chunk_end(p, c) - k;
      const float* a = p.a.data + static_cast<ptrdiff_t>(at) * p.a.s_x + static_cast<ptrdiff_t>(k);
      const float* b = r.shared + (k - r.k0) * padded_cols(r.xn);
      if (whole > q0)
        run_tiles(r, r.tiles, a, at, h, b + q0 * kCols * kc, kCols, kCols * kc, r.x0 + q0 * kCols,
                  edge - q0 * kCols, k, kc, p.out);
      if (q1 > whole)
        run_tiles(r, r.tiles, a, at, h, b + edge * kc, padded_cols(r.xn - edge), 0, r.x0 + edge,
                  r.xn - edge, k, kc, p.out);
    }
  }
}

static void strip_task_share_b(Run& r, size_t strip, size_t split) {
  const GemmProblem& p = *r.p;
  const size_t i0 = strip * r.strip, height = ts_min(r.strip, p.m - i0);
  if (r.a_in_place) return strip_task_rows_of_a(r, i0, height, split);
  float* packed = strip_room(r, height * kChunk);
  if (packed == nullptr) return;
  const RowPanels rows(height);
  const size_t n_panels = ceil_div(r.xn, kCols);
  const size_t q0 = n_panels * split / r.splits, q1 = n_panels * (split + 1) / r.splits;
  for (size_t c = r.c0; c < r.c1; ++c) {
    const size_t k = chunk_begin(p, c), kc = chunk_end(p, c) - k;
    pack_rows_of_a(p.a, i0, height, 0, rows.count, k, kc, packed);
    const float* b = r.shared + (k - r.k0) * padded_cols(r.xn);
    for (size_t q = q0; q < q1; ++q) {
      const size_t j = q * kCols, w = ts_min(r.xn - j, size_t(kCols));
      for (size_t i = 0; i < rows.count; ++i)
        run_tiles(r, r.tiles, packed + rows.begin(i) * kc, i0 + rows.begin(i), rows.size(i),
                  b + j * kc, padded_cols(w), 0, r.x0 + j, w, k, kc, p.out);
    }
  }
}

static void strip_task(void* ctx, size_t t) {
  Run& r = *static_cast<Run*>(ctx);
  const size_t split = t % r.splits, rest = t / r.splits;
  if (r.share_a) {
    strip_task_share_a(r, rest / r.strips, rest % r.strips, split);
  } else {
    strip_task_share_b(r, rest, split);
  }
}

// --- one row of A ----------------------------------------------------------------------------
struct ThinRun {
  const GemmProblem* p;
  size_t width;
  int failed;
};

static void thin_task(void* ctx, size_t t) {
  ThinRun& r = *static_cast<ThinRun*>(ctx);
  const GemmProblem& p = *r.p;
  float* partial = strip_room(r, kThinCols);
  if (partial == nullptr) return;
  const size_t j0 = t * r.width, cols = ts_min(r.width, p.n - j0);
  const float* b = p.b.data + static_cast<ptrdiff_t>(j0) * p.b.s_x;
  if (p.b.s_x == 1) {
    thin_row(p.a.data, p.a.s_k, b, p.b.s_k, p.k, cols, p.out + j0, partial);
  } else {
    thin_dots(p.a.data, p.a.s_k, b, p.b.s_x, p.k, cols, p.out + j0);
  }
  if (p.ep.active) epilogue(p, 0, 1, j0, cols, p.out + j0);
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

static bool run_products(const GemmProblem& given, size_t count, ptrdiff_t b_step,
                         ptrdiff_t out_step, size_t threads) {
  if (given.m == 0 || given.n == 0 || count == 0) return true;
  if (given.k == 0) {
    fill_empty(given, count, out_step);
    return true;
  }
  GemmProblem p = given;
  const bool plain = p.a.kind == OperandKind::strided && p.b.kind == OperandKind::strided;
  if (p.n == 1 && p.m > 1 && count == 1 && plain && p.ldc == 1) {
    // A column of outputs is a row of the transposed product, whose terms are the same.
    const GemmOperand a = p.a;
    p.a = p.b;
    p.b = a;
    p.n = p.m;
    p.m = 1;
    p.ldc = static_cast<ptrdiff_t>(p.n);
    const ptrdiff_t rows = p.ep.c_rows;
    p.ep.c_rows = p.ep.c_cols;
    p.ep.c_cols = rows;
  }
  const double work = double(p.m) * double(p.n) * double(p.k) * double(count);
  if (work < kSerialWork) threads = 1;
  // The scalar path's micro-kernel has the better fma (see tile_hw).
  if (kLanes > 1 && p.m == 1 && count == 1 && plain && p.a.k_inner == 0 && p.b.k_inner == 0 &&
      (p.b.s_x == 1 || p.b.s_k == 1) && p.n >= size_t(kCols)) {
    ThinRun thin = {&p, ceil_div(ceil_div(p.n, threads), 64) * 64, 0};
    for_tasks(ceil_div(p.n, thin.width), thin_task, &thin, threads == 1);
    return thin.failed == 0;
  }

  Run r = {};
  r.p = &p;
  r.tiles = &tiles();
  r.b_step = b_step;
  r.out_step = out_step;
  r.share_a = count > 1 || p.m <= p.n;
  const size_t y_total = r.share_a ? p.n : p.m;
  const size_t unit = r.share_a ? kCols : kRows;
  const size_t widest = r.share_a ? kStripCols : kStripRows;
  r.strip = strip_width(y_total, count, unit, widest, threads);
  r.strips = ceil_div(y_total, r.strip);
  const size_t x_total = r.share_a ? p.m : p.n;
  const size_t x_blocks = ceil_div(x_total, kSharedMax);
  const size_t x_unit = r.share_a ? kRows : kCols;
  const size_t x_block = ceil_div(ceil_div(x_total, x_blocks), x_unit) * x_unit;
  const size_t chunks = chunk_count(p);
  const size_t chunks_per_block = ts_max(kSharedFloats / (x_block * kChunk), size_t(1));
  // Rows a large power of two apart share few sets of the cache, and evict each other before the
  // next rows of A read them.
  const bool collide = p.m > size_t(kRows) && p.b.s_k % kSetStride == 0;
  r.direct = r.share_a && p.b.kind == OperandKind::strided && p.b.k_inner == 0 && p.b.s_x == 1 &&
             p.b.s_k >= 0 && p.m <= kDirectRows && !collide;

  r.a_in_place = tiles_in_place() != nullptr && count == 1 && p.n <= kDirectCols &&
                 p.a.kind == OperandKind::strided && p.a.k_inner == 0 && p.a.s_k == 1;
  if (r.a_in_place) r.tiles = tiles_in_place();

  for (r.x0 = 0; r.x0 < x_total; r.x0 += x_block) {
    r.xn = ts_min(x_block, x_total - r.x0);
    const size_t x_panels = ceil_div(r.xn, x_unit);
    const size_t width = r.share_a ? r.xn : padded_cols(r.xn);
    const size_t tasks = r.strips * count;
    r.splits = tasks >= threads ? 1 : ts_min(ceil_div(threads, tasks), x_panels);
    for (size_t c0 = 0; c0 < chunks; c0 += chunks_per_block) {
      const size_t c1 = ts_min(c0 + chunks_per_block, chunks);
      r.c0 = c0;
      r.c1 = c1;
      r.k0 = chunk_begin(p, c0);
      const size_t terms = chunk_end(p, c1 - 1) - r.k0;
      if (!r.share_a || !r.a_in_place) {
        if (!pack_shared(r, terms, width, x_panels, threads)) return false;
      }
      for_tasks(tasks * r.splits, strip_task, &r, threads == 1);
      if (r.failed) return false;
    }
  }
  return true;
}

static bool gemm(const GemmProblem& p, size_t count, ptrdiff_t b_step, ptrdiff_t out_step) {
  return run_products(p, count, b_step, out_step, static_cast<size_t>(thread_count()));
}

// --- B stored in 16 bits ----------------------------------------------------------------------
struct StoredRun {
  const GemmProblem* p;
  const StoredOperand* b;
  size_t width;
  int failed;
};

// Task: some columns of the output, by a product of their own.
static void stored_task(void* ctx, size_t t) {
  StoredRun& r = *static_cast<StoredRun*>(ctx);
  const StoredOperand& b = *r.b;
  GemmProblem p = *r.p;
  const size_t j0 = t * r.width;
  p.n = ts_min(r.width, p.n - j0);
  float* wide = wide_scratch.get(p.n * p.k);
  if (wide == nullptr) {
    __atomic_store_n(&r.failed, 1, __ATOMIC_RELAXED);
    return;
  }
  const uint16_t* src = b.data + static_cast<ptrdiff_t>(j0) * b.s_x;
  p.b = {};
  p.b.data = wide;
  if (b.s_x == 1) {  // rows of B are adjacent, and stay so
    widen(b, src, p.k, b.s_k, p.n, b.s_x, wide);
    p.b.s_x = 1;
    p.b.s_k = static_cast<ptrdiff_t>(p.n);
  } else {
    widen(b, src, p.n, b.s_x, p.k, b.s_k, wide);
    p.b.s_x = static_cast<ptrdiff_t>(p.k);
    p.b.s_k = 1;
  }
  p.out += j0;
  if (p.ep.c != nullptr) p.ep.c += static_cast<ptrdiff_t>(j0) * p.ep.c_cols;
  if (!run_products(p, 1, 0, 0, 1)) __atomic_store_n(&r.failed, 1, __ATOMIC_RELAXED);
}

static bool gemm_stored(const GemmProblem& p, const StoredOperand& b) {
  if (p.m == 0 || p.n == 0 || p.k == 0) return run_products(p, 1, 0, 0, 1);
  const size_t floats = p.m > kDirectRows ? kWideMore * kWideFloats : kWideFloats;
  StoredRun r = {&p, &b, ts_max(floats / p.k / kCols, size_t(1)) * kCols, 0};
  const double work = double(p.m) * double(p.n) * double(p.k);
  for_tasks(ceil_div(p.n, r.width), stored_task, &r, work < kSerialWork);
  return r.failed == 0;
}

// --- B as panels ------------------------------------------------------------------------------
// Up to so many floats of A stay in a cache while a panel is read with all its chunks, in the order
// in which it lies in memory. A larger A is met chunk by chunk.
constexpr size_t kNearFloats = size_t(256) << 10;
constexpr size_t kTasksOfThread = 4, kSoonFloats = 512;

struct PanelRun {
  Run run;
  const PanelOperand* b;
  const TileTable* streaming;
};

// A chunk of the panel at column j: in its place, or widened into `room`.
TS_INLINE const float* panel_chunk(const PanelRun& r, size_t j, size_t k, size_t kc, float* room) {
  const size_t at = j * r.run.p->k + k * kPanelCols;
  if (r.b->wide != nullptr) return r.b->wide + at;
  if (const PanelForm* f = r.b->form) {
    f->chunk(f->panels, r.run.p->k, j, k, kc, room);
    return room;
  }
  StoredOperand b = {};
  b.type = r.b->type;
  widen(b, r.b->stored + at, 1, 0, kc * kPanelCols, 1, room);
  return room;
}

static void panels_task(void* ctx, size_t t) {
  PanelRun& r = *static_cast<PanelRun*>(ctx);
  Run& run = r.run;
  const GemmProblem& p = *run.p;
  const size_t strip = t / run.splits, split = t % run.splits;
  const size_t j0 = strip * run.strip, j1 = ts_min(j0 + run.strip, p.n);
  const RowPanels rows(run.xn);
  const size_t p0 = rows.count * split / run.splits, p1 = rows.count * (split + 1) / run.splits;
  const size_t together = run.xn * p.k <= kNearFloats ? kPanelCols : run.strip;
  float* room = nullptr;
  if (r.b->wide == nullptr && (room = strip_room(run, kPanelCols * kChunk)) == nullptr) return;
  const TileTable* tiles = room == nullptr ? r.streaming : run.tiles;
  for (size_t g = j0; g < j1; g += together) {
    for (size_t c = run.c0; c < run.c1; ++c) {
      const size_t k = chunk_begin(p, c), kc = chunk_end(p, c) - k;
      for (size_t j = g; j < ts_min(g + together, j1); j += kPanelCols) {
        const float* b = panel_chunk(r, j, k, kc, room);
        const size_t cols = ts_min(kPanelCols, p.n - j), whole = cols / kCols * kCols;
        // What follows the chunk in memory is fetched meanwhile, a part of it with each panel of
        // rows. One panel alone fetches what it needs soon.
        const size_t part = room == nullptr ? ceil_div(kc * kPanelCols, p1 - p0) : 0;
        const float* ahead = b + (p1 - p0 == 1 ? kSoonFloats : kc * kPanelCols);
        for (size_t i = p0; i < p1; ++i, ahead += part) {
          const size_t at = rows.begin(i), height = rows.size(i);
          const float* a = panel_of_a(run, at, k, kc);
          if (whole != 0)
            run_tiles(run, tiles, a, run.x0 + at, height, b, kPanelCols, kCols, j, whole, k, kc,
                      p.out, ahead, part);
          if (whole != cols)
            run_tiles(run, tiles, a, run.x0 + at, height, b + whole, kPanelCols, kCols, j + whole,
                      cols - whole, k, kc, p.out);
        }
      }
    }
  }
}

static void panel_row_task(void* ctx, size_t t) {
  const PanelRun& r = *static_cast<const PanelRun*>(ctx);
  const GemmProblem& p = *r.run.p;
  const size_t j0 = t * r.run.strip, cols = ts_min(r.run.strip, p.n - j0), at = j0 * p.k;
  float* out = p.out + j0;
  if (const PanelForm* f = r.b->form) {
    f->row(f->panels, p.a.data, p.a.s_k, p.k, j0, cols, out);
  } else if (r.b->wide != nullptr) {
    row_of_panels<Float32Panel>(p.a.data, p.a.s_k, r.b->wide + at, p.k, cols, out);
  } else if (r.b->type == Stored::bf16) {
    row_of_panels<Bf16Panel>(p.a.data, p.a.s_k, r.b->stored + at, p.k, cols, out);
  } else {
    row_of_panels<F16Panel>(p.a.data, p.a.s_k, r.b->stored + at, p.k, cols, out);
  }
  if (p.ep.active) epilogue(p, 0, 1, j0, cols, out);
}

static bool gemm_panels(const GemmProblem& p, const PanelOperand& b) {
  if (p.m == 0 || p.n == 0) return true;
  if (p.k == 0) {
    fill_empty(p, 1, 0);
    return true;
  }
  const double work = double(p.m) * double(p.n) * double(p.k);
  const size_t threads = work < kSerialWork ? 1 : static_cast<size_t>(thread_count());
  PanelRun r = {};
  r.b = &b;
  Run& run = r.run;
  run.p = &p;
  // The scalar path's micro-kernel has the better fma (see tile_hw).
  if (kLanes > 1 && p.m == 1) {
    const size_t panels = ceil_div(p.n, kPanelCols);
    const size_t each = threads == 1 ? panels : ceil_div(panels, threads * kTasksOfThread);
    run.strip = (each + each % 2) * kPanelCols;  // pairs of panels are read together
    for_tasks(ceil_div(p.n, run.strip), panel_row_task, &r, threads == 1);
    return true;
  }
  run.tiles = &tiles();
  r.streaming = &tiles_streaming();
  run.share_a = true;
  run.strip = strip_width(p.n, 1, kPanelCols, kStripCols, threads);
  run.strips = ceil_div(p.n, run.strip);
  const size_t chunks = chunk_count(p), block = ts_min(p.m, kSharedMax);
  const size_t chunks_of_block = ts_max(kSharedFloats / (block * kChunk), size_t(1));
  for (run.x0 = 0; run.x0 < p.m; run.x0 += block) {
    run.xn = ts_min(block, p.m - run.x0);
    const size_t row_panels = RowPanels(run.xn).count;
    run.splits = run.strips >= threads ? 1 : ts_min(ceil_div(threads, run.strips), row_panels);
    for (run.c0 = 0; run.c0 < chunks; run.c0 = run.c1) {
      run.c1 = ts_min(run.c0 + chunks_of_block, chunks);
      run.k0 = chunk_begin(p, run.c0);
      const size_t terms = chunk_end(p, run.c1 - 1) - run.k0;
      if (!pack_shared(run, terms, run.xn, row_panels, threads)) return false;
      for_tasks(run.strips * run.splits, panels_task, &r, threads == 1);
      if (run.failed) return false;
    }
  }
  return true;
}

struct BatchRun {
  const GemmProblem* p;
  ptrdiff_t a_step, b_step, out_step;
  size_t count, groups;
  int failed;
};

static bool run_batch(const BatchRun& r, size_t begin, size_t end, size_t threads) {
  for (size_t i = begin; i < end; ++i) {
    GemmProblem p = *r.p;
    p.a.data += static_cast<ptrdiff_t>(i) * r.a_step;
    p.b.data += static_cast<ptrdiff_t>(i) * r.b_step;
    p.out += static_cast<ptrdiff_t>(i) * r.out_step;
    if (!run_products(p, 1, 0, 0, threads)) return false;
  }
  return true;
}

static void batch_task(void* ctx, size_t t) {
  BatchRun& r = *static_cast<BatchRun*>(ctx);
  if (!run_batch(r, r.count * t / r.groups, r.count * (t + 1) / r.groups, 1))
    __atomic_store_n(&r.failed, 1, __ATOMIC_RELAXED);
}

static bool bmm(const GemmProblem& p, size_t count, ptrdiff_t a_step, ptrdiff_t b_step,
                ptrdiff_t out_step) {
  const size_t threads = static_cast<size_t>(thread_count());
  BatchRun r = {&p, a_step, b_step, out_step, count, 1, 0};
  const double each = double(p.m) * double(p.n) * double(p.k);
  // Products across threads if there are enough of them, else threads inside each product.
  if (threads == 1 || each * double(count) < kSerialWork) return run_batch(r, 0, count, 1);
  if (count < 2 * threads && each > 4 * kSerialWork) return run_batch(r, 0, count, threads);
  r.groups = ts_min(count, threads * 8);
  parallel_for(r.groups, batch_task, &r);
  return r.failed == 0;
}

}  // namespace TS_ISA

TS_DEFINE_TABLE(GemmTable, gemm) = {&TS_ISA::gemm, &TS_ISA::bmm,
                                        &TS_ISA::gemm_stored, &TS_ISA::gemm_panels};

}  // namespace tallystick
