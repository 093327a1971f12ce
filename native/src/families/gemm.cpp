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

#include "tallystick/gemm_blocks.hpp"
#include "tallystick/gemm_panel_run.hpp"
#include "tallystick/gemm_thin.hpp"
#include "tallystick/gemm_widen.hpp"

namespace tallystick {
namespace TS_ISA {

constexpr size_t kStripRows = 16 * kRows;
// Up to this many rows of A, B is read in its own place if its rows are contiguous.
constexpr size_t kDirectRows = 64;
// Up to this many columns of B, A is read in its own place. Its tiles are 3 % slower, but packing
// costs more.
constexpr size_t kDirectCols = 256;
// Floats: 128 rows of a chunk so far apart do not fit a cache of 64 sets and 8 ways.
constexpr ptrdiff_t kSetStride = 128;

// Floats of a strip of a stored B, and the factor for products of many rows, which pack their A
// again for each strip.
constexpr size_t kWideFloats = size_t(64) << 10, kWideMore = 4;

static thread_local Scratch wide_scratch;

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

// --- many products ----------------------------------------------------------------------------
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
