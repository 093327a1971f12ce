// The product with a B that lies as panels (gemm_panels.hpp): nothing of B is packed.
#pragma once
#include "tallystick/gemm_blocks.hpp"
#include "tallystick/gemm_panels.hpp"
#include "tallystick/gemm_widen.hpp"

namespace tallystick::TS_ISA {

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

}  // namespace tallystick::TS_ISA
