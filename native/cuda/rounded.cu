// The dot class of `rounded/1` (NUMERICS 13): products in binary64 by an admissible kernel (14.3),
// then R of each element. An element whose rounding the bound of 14.4 leaves in doubt is summed
// exactly by the warp that found it.
#include "dots.hpp"

namespace tallystick::TS_ISA {

// --- the bound's sums ----------------------------------------------------------------------------
struct ReadWideSquare {
  TS_INLINE static double load(const FoldParams& p, int64_t at, int64_t, int64_t) {
    const double x = static_cast<double>(floats(p.x)[at]);
    return x * x;
  }
};
TS_FOLD(rounded_squares, Sum64, ReadWideSquare)

// --- patches -------------------------------------------------------------------------------------
// out[(g·taps + t)·count + j] = tap t of place first + j, of group g.
struct Patches {
  Window window;
  int64_t groups, taps, first, count;
  float* out;
};
TS_KERNEL(rounded_patches, Patches, 256) {
  for (int64_t j = first_item(); j < p.count; j += item_step()) {
    const Spot place = place_of(p.window, 0, p.first + j);
    for (int64_t row = block_y(); row < p.groups * p.taps; row += grid_y()) {
      const int64_t g = quotient(row, p.taps);
      const Spot own = {place.base + g * p.window.group, place.y, place.x};
      p.out[row * p.count + j] = tap_of(p.window, own, row - g * p.taps);
    }
  }
}

// --- operands of a library's product -------------------------------------------------------------
// out[(z·slow + s)·fast + f] = the binary32 at g % period·batch + s·slow_step + f·fast_step, g =
// first_batch + z.
struct Widened {
  const float* data;
  int64_t period, batch, slow_step, fast_step;
  int64_t batches, first_batch, slow, fast;
  double* out;
};
TS_KERNEL(rounded_widen, Widened, 256) {
  const int64_t count = p.batches * p.slow * p.fast;
  for (int64_t i = first_item(); i < count; i += item_step()) {
    const int64_t line = quotient(i, p.fast), z = quotient(line, p.slow), g = p.first_batch + z;
    const int64_t batch = (g - quotient(g, p.period) * p.period) * p.batch;
    const int64_t s = line - z * p.slow, f = i - line * p.fast;
    p.out[i] = static_cast<double>(p.data[batch + s * p.slow_step + f * p.fast_step]);
  }
}

// --- the product ---------------------------------------------------------------------------------
// w[q][z][i][j] = the sum over the terms of part q of a(g,i,k)·b(g,j,k), g = first_batch + z; added to
// what stands there if `adds`. A block makes a tile of 64 by 64, a thread 4 by 4 of it. A term passes
// through at most as many additions as its part has terms.
struct Product {
  Lines a, b;  // each of one run
  double* w;
  int64_t batches, m, n, k, first_batch;
  int64_t parts, part, adds;  // number of parts, and the terms of one
  int64_t tiles_m, tiles_n;
};
constexpr int kSide = 64, kDepth = 16, kRowRoom = kSide + 2, kOwn = 4;

// The 1,024 elements of a tile, four for each thread: neighbouring threads read neighbours in memory.
struct TileReader {
  const float* data;
  int64_t lines, line, term, end;  // from this tile's first line on
  uint32_t own_line[kOwn], own_term[kOwn];

  TS_INLINE void begin(const Lines& p, int64_t g, int64_t first, int64_t all, int64_t last) {
    data = p.data + (g - quotient(g, p.period) * p.period) * p.batch + first * p.line;
    lines = all - first;
    line = p.line, term = p.term, end = last;
    const bool lines_first = p.line == 1 && p.term != 1;
    TS_UNROLL
    for (int e = 0; e < kOwn; ++e) {
      const uint32_t at = thread_index() + 256 * e;
      own_line[e] = lines_first ? at % kSide : at / kDepth;
      own_term[e] = lines_first ? at / kSide : at % kDepth;
    }
  }
  TS_INLINE void load(int64_t k, float (&value)[kOwn]) const {
    TS_UNROLL
    for (int e = 0; e < kOwn; ++e) {
      const int64_t at = k + own_term[e];
      value[e] = own_line[e] < lines && at < end ? data[own_line[e] * line + at * term] : 0.0f;
    }
  }
  TS_INLINE void store(const float (&value)[kOwn], double* tile) const {
    TS_UNROLL
    for (int e = 0; e < kOwn; ++e)
      tile[own_term[e] * kRowRoom + own_line[e]] = static_cast<double>(value[e]);
  }
};

TS_KERNEL(rounded_product, Product, 256) {
  TS_SHARED(double, tile_a, kDepth * kRowRoom);
  TS_SHARED(double, tile_b, kDepth * kRowRoom);
  const int64_t tiles = p.tiles_m * p.tiles_n, whole = quotient(block_x(), tiles);
  const int64_t tile = block_x() - whole * tiles, tile_m = quotient(tile, p.tiles_n);
  const int64_t row0 = tile_m * kSide, column0 = (tile - tile_m * p.tiles_n) * kSide;
  const int64_t q = quotient(whole, p.batches), z = whole - q * p.batches;
  const int64_t from = q * p.part, end = ts_min(p.k, from + p.part);
  TileReader of_a, of_b;
  of_a.begin(p.a, p.first_batch + z, row0, p.m, end);
  of_b.begin(p.b, p.first_batch + z, column0, p.n, end);
  // A warp has 32 rows and 16 columns of the tile.
  const uint32_t row = warp_index() % 2 * 32 + lane_index() / 4 * kOwn;
  const uint32_t column = warp_index() / 2 * 16 + lane_index() % 4 * kOwn;
  double acc[kOwn][kOwn];
  TS_UNROLL
  for (int i = 0; i < kOwn; ++i) {
    TS_UNROLL
    for (int j = 0; j < kOwn; ++j) acc[i][j] = 0.0;
  }
  float next_a[kOwn], next_b[kOwn];
  of_a.load(from, next_a);
  of_b.load(from, next_b);
  for (int64_t k = from; k < end; k += kDepth) {
    of_a.store(next_a, tile_a);
    of_b.store(next_b, tile_b);
    if (!has_fault(Fault::missing_barrier)) block_barrier();
    of_a.load(k + kDepth, next_a);
    of_b.load(k + kDepth, next_b);
    TS_UNROLL_BY(4)
    for (int t = 0; t < kDepth; ++t) {
      double a[kOwn], b[kOwn];
      TS_UNROLL
      for (int i = 0; i < kOwn; ++i) {
        a[i] = tile_a[t * kRowRoom + row + i];
        b[i] = tile_b[t * kRowRoom + column + i];
      }
      TS_UNROLL
      for (int i = 0; i < kOwn; ++i) {
        TS_UNROLL
        for (int j = 0; j < kOwn; ++j) acc[i][j] = fma1(a[i], b[j], acc[i][j]);
      }
    }
    if (!has_fault(Fault::race)) block_barrier();
  }
  double* w = p.w + whole * p.m * p.n;
  TS_UNROLL
  for (int i = 0; i < kOwn; ++i) {
    TS_UNROLL
    for (int j = 0; j < kOwn; ++j) {
      const int64_t r = row0 + row + i, c = column0 + column + j;
      if (r >= p.m || c >= p.n) continue;
      const int64_t at = r * p.n + c;
      w[at] = p.adds ? w[at] + acc[i][j] : acc[i][j];
    }
  }
}

// --- the decision --------------------------------------------------------------------------------
struct DecideLines { Decision of; Lines a, b; };
struct DecideWindow { Decision of; Lines a; Window b; };

// A warp takes 32 elements at a time; together it sums the elements in doubt. Meanwhile a thread keeps
// nothing of its own element: else registers run out.
template <class A, class B>
TS_INLINE void decide(const Decision& p, const A& a, const B& b) {
  const int64_t count = p.w_batches * p.w_rows * p.w_columns;
  const int bits = static_cast<int>(p.bits);
  for (int64_t first = first_item() - lane_index(); first < count; first += item_step()) {
    bool doubt = false;
    if (first + lane_index() < count) {
      const Element own = element_of(p, first + lane_index());
      const Near near = near_of(p, own);
      const Judged judged = judge(near, p.share.value, bits);
      // 13.4: a NaN operand makes every element of its row or column NaN. The sums of squares show
      // it, so that a diverged run does not sum every element exactly.
      doubt = judged.doubt && !near.nan;
      if (!doubt) put_value(p, own, near.nan ? bits_float(kCanonicalNan) : judged.r);
    }
    for (uint32_t doubtful = warp_ballot(doubt); doubtful; doubtful &= doubtful - 1) {
      const Element e = element_of(p, first + trailing_zeros(doubtful));
      const float r = warp_exact(terms_of(p), bits, term_of(p, e, a, b));
      if (lane_index() == 0) put_value(p, e, r);
    }
  }
}

TS_KERNEL(rounded_decide_lines, DecideLines, 256) {
  decide(p.of, LinesReader{p.a}, LinesReader{p.b});
}
TS_KERNEL(rounded_decide_places, DecideWindow, 256) {
  decide(p.of, LinesReader{p.a}, PlacesReader{p.b});
}
TS_KERNEL(rounded_decide_taps, DecideWindow, 256) {
  decide(p.of, LinesReader{p.a}, TapsReader{p.b});
}

// --- sums ----------------------------------------------------------------------------------------
TS_INLINE void put_running(const SumParams& p, int64_t q, int64_t l, const Running& r) {
  const int64_t size = p.at.pieces * p.at.outputs, at = q * p.at.outputs + l;
  p.states[at] = r.sum;
  p.states[size + at] = r.low;
  p.states[2 * size + at] = r.size;
}
// A warp for each part of a line.
TS_KERNEL(rounded_sum_warp, SumParams, 256) {
  const int64_t items = p.at.outputs * p.at.pieces, step = item_step() / kWarp;
  for (int64_t item = first_item() / kWarp; item < items; item += step) {
    const int64_t l = quotient(item, p.at.pieces), q = item - l * p.at.pieces;
    const int64_t base = base_of(p.at, l), end = ts_min(p.at.n, (q + 1) * p.at.piece);
    const Running r = warp_merged(running(q * p.at.piece + lane_index(), end, kWarp,
                                          [&](int64_t i) { return term_at(p, base, i); }));
    if (lane_index() == 0) put_running(p, q, l, r);
  }
}
// A thread for each part of a line: neighbouring lines lie side by side.
TS_KERNEL(rounded_sum_thread, SumParams, 256) {
  const int64_t items = p.at.outputs * p.at.pieces;
  for (int64_t item = first_item(); item < items; item += item_step()) {
    const int64_t q = quotient(item, p.at.outputs), l = item - q * p.at.outputs;
    const int64_t base = base_of(p.at, l), end = ts_min(p.at.n, (q + 1) * p.at.piece);
    put_running(p, q, l, running(q * p.at.piece, end, 1,
                                 [&](int64_t i) { return term_at(p, base, i); }));
  }
}
// Each line's parts together; a block has as many lines as threads. Lines in doubt are summed again,
// by all of the block.
TS_KERNEL(rounded_sum_end, SumParams, 256) {
  TS_SHARED(uint32_t, doubtful, 256);
  TS_SHARED(int64_t, room, kExactRoom);
  const int bits = static_cast<int>(p.bits);
  for (int64_t first = first_item() - thread_index(); first < p.at.outputs; first += item_step()) {
    const int64_t l = first + thread_index();
    doubtful[thread_index()] = 0;
    if (l < p.at.outputs) {
      const Running r = running_of(p, l);
      float value;
      const double n = static_cast<double>(p.at.n + 2 * kWarp * p.at.pieces);
      if (sum_decide(r.sum, r.low, r.size, n, bits, &value)) put_sum(p, l, value);
      else doubtful[thread_index()] = 1;
    }
    block_barrier();
    for (uint32_t i = 0; i < thread_count(); ++i) {
      if (!doubtful[i]) continue;
      const int64_t base = base_of(p.at, first + i);
      const float value =
          block_exact(p.at.n, bits, [&](int64_t k) { return term_at(p, base, k); }, room);
      if (thread_index() == 0) put_sum(p, first + i, value);
    }
    block_barrier();
  }
}

}  // namespace tallystick::TS_ISA
