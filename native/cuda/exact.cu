// `exact/1` around its products (NUMERICS 17): the groups' largest magnitudes, the integers of every
// element, the totals of blocks, and the elements beside numbers that are not finite.
#include "blocks.hpp"
#include "operands.hpp"

namespace tallystick::TS_ISA {

// --- the largest magnitudes ------------------------------------------------------------------------
// Of lines cut into segments (17.3). A maximum of integers has no order, so pieces of a segment meet in
// atomic operations. `mu`, `whole` (blocks.hpp) and `any`, which becomes 1 where a number is not
// finite, start as zeros.
struct Most {
  Lines x;
  int64_t batches, lines, terms;
  int64_t segment, segments;
  int64_t piece, pieces;  // index values of one; of a segment
  uint32_t *mu, *whole, *any;
};
TS_INLINE void put_most(const Most& p, int64_t line, int64_t s, uint32_t mu) {
  if (mu == 0) return;
  atomic_max(p.mu + line * p.segments + s, mu);
  atomic_max(p.whole + line, mu);
  if (mu >= kInfinityBits) atomic_max(p.any, 1u);
}
// The index values [first, end) of piece q of segment s.
struct Range { int64_t first, end; };
TS_INLINE Range range_of(const Most& p, int64_t s, int64_t q) {
  const int64_t end = ts_min(p.terms, (s + 1) * p.segment), first = s * p.segment + q * p.piece;
  return {first, ts_min(end, first + p.piece)};
}

// Of terms k, k + step, ... below `end`; four loads at a time do not wait for each other.
TS_INLINE uint32_t most_of(const LinesReader& x, int64_t g, int64_t line, int64_t k, int64_t end,
                           int64_t step) {
  uint32_t mu = 0;
  for (; k + 3 * step < end; k += 4 * step) {
    uint32_t found[4];
    TS_UNROLL
    for (int i = 0; i < 4; ++i) found[i] = magnitude_bits(x.value(g, line, k + i * step));
    TS_UNROLL
    for (int i = 0; i < 4; ++i) mu = ts_max(mu, found[i]);
  }
  for (; k < end; k += step) mu = ts_max(mu, magnitude_bits(x.value(g, line, k)));
  return mu;
}

// A warp for each piece of a line: neighbouring threads read neighbouring terms.
TS_KERNEL(exact_most_terms, Most, 256) {
  const int64_t warps = item_step() / kWarp, each = p.segments * p.pieces;
  for (int64_t item = first_item() / kWarp; item < p.batches * p.lines * each; item += warps) {
    const int64_t line = quotient(item, each), rest = item - line * each;
    const int64_t s = quotient(rest, p.pieces), g = quotient(line, p.lines);
    const Range range = range_of(p, s, rest - s * p.pieces);
    const LinesReader x{p.x};
    uint32_t mu = most_of(x, g, line - g * p.lines, range.first + lane_index(), range.end, kWarp);
    for (uint32_t m = kWarp / 2; m >= 1; m /= 2) mu = ts_max(mu, warp_xor(mu, m));
    if (lane_index() == 0) put_most(p, line, s, mu);
  }
}
// A block for each piece of 32 lines: neighbouring threads read neighbouring lines.
TS_KERNEL(exact_most_lines, Most, 256) {
  TS_SHARED(uint32_t, found, 256);
  const int64_t each = p.segments * p.pieces, groups = (p.lines + kWarp - 1) / kWarp;
  for (int64_t item = block_x(); item < p.batches * groups * each; item += grid_x()) {
    const int64_t whole = quotient(item, each), rest = item - whole * each;
    const int64_t s = quotient(rest, p.pieces), g = quotient(whole, groups);
    const int64_t own = (whole - g * groups) * kWarp + lane_index();
    const Range range = range_of(p, s, rest - s * p.pieces);
    const LinesReader x{p.x};
    uint32_t mu = 0;
    if (own < p.lines) mu = most_of(x, g, own, range.first + warp_index(), range.end, 8);
    found[thread_index()] = mu;
    block_barrier();
    if (warp_index() == 0 && own < p.lines) {
      for (uint32_t w = 1; w < 8; ++w) mu = ts_max(mu, found[w * kWarp + lane_index()]);
      put_most(p, g * p.lines + own, s, mu);
    }
    block_barrier();
  }
}

// --- the integers ----------------------------------------------------------------------------------
// Line first_line + x of batch first_batch + z, position t of the layout (blocks.hpp): digit d of the
// integer goes to out[d·plane + (z·lines + x)·pitch + t] as a byte; or the integer itself, as
// binary32, to out[(z·lines + x)·pitch + t].
struct Lay {
  Blocks blocks;
  Groups groups;
  int64_t first_batch, batches, first_line, lines;
  int64_t lines_first;  // neighbouring lines lie next to each other, and terms do not
  int64_t width, digits;
  void* out;
  int64_t plane;
};
struct LayLines { Lay of; Lines x; };
struct LayWindow { Lay of; Window x; };

constexpr int64_t kLaidLines = 32, kLaidStep = kSlice + 1;

// A block lays 64 positions of 32 lines at a time.
template <bool AsDigits, class Reader>
TS_INLINE void lay(const Lay& p, const Reader& x) {
  TS_SHARED(int32_t, laid, kLaidLines * kLaidStep);
  TS_SHARED(double, factors, kLaidLines);
  const int64_t across = p.blocks.pitch / kSlice, down = (p.lines + kLaidLines - 1) / kLaidLines;
  const int width = static_cast<int>(p.width), digits = static_cast<int>(p.digits);
  for (int64_t item = block_x(); item < p.batches * down * across; item += grid_x()) {
    const int64_t whole = quotient(item, across), position = (item - whole * across) * kSlice;
    const int64_t z = quotient(whole, down), line = (whole - z * down) * kLaidLines;
    const int64_t block = quotient(position, p.blocks.padded), s = quotient(block, p.blocks.each);
    // Index values of the block: [first, end).
    const int64_t first = s * p.blocks.segment + (block - s * p.blocks.each) * p.blocks.length;
    int64_t end = ts_min(p.blocks.terms, (s + 1) * p.blocks.segment);
    end = ts_min(end, first + p.blocks.length);
    const int64_t from = first + position - block * p.blocks.padded, g = p.first_batch + z;
    if (thread_index() < kLaidLines && line + thread_index() < p.lines) {
      const int64_t group = group_of(p.groups, g, p.first_line + line + thread_index());
      factors[thread_index()] = exact_factor(p.groups.mu[group * p.groups.segments + s], width);
    }
    block_barrier();
    TS_UNROLL_BY(4)
    for (int e = 0; e < kLaidLines * kSlice / 256; ++e) {
      const int at = static_cast<int>(thread_index()) + 256 * e;
      const int row = p.lines_first ? at % kLaidLines : at / kSlice;
      const int term = p.lines_first ? at / kLaidLines : at % kSlice;
      int m = 0;
      if (line + row < p.lines && from + term < end)
        m = exact_whole(x.value(g, p.first_line + line + row, from + term), factors[row], width);
      laid[row * kLaidStep + term] = m;
    }
    block_barrier();
    if (AsDigits) {
      TS_ROLLED
      for (int e = 0; e < kLaidLines * kSlice / 4 / 256; ++e) {
        const int at = static_cast<int>(thread_index()) + 256 * e;
        const int row = at / (kSlice / 4), term = at % (kSlice / 4) * 4;
        if (line + row >= p.lines) continue;
        uint32_t words[kMostDigits] = {0, 0, 0};
        TS_UNROLL
        for (int i = 0; i < 4; ++i) {
          int rest = laid[row * kLaidStep + term + i];
          TS_UNROLL
          for (int d = 0; d < kMostDigits; ++d)
            words[d] |= static_cast<uint32_t>(exact_digit(rest) & 0xff) << (8 * i);
        }
        auto* out = static_cast<uint8_t*>(p.out) + (z * p.lines + line + row) * p.blocks.pitch;
        TS_UNROLL
        for (int d = 0; d < kMostDigits; ++d)
          if (d < digits)
            *reinterpret_cast<uint32_t*>(out + d * p.plane + position + term) = words[d];
      }
    } else {
      for (int e = 0; e < kLaidLines * kSlice / 256; ++e) {
        const int at = static_cast<int>(thread_index()) + 256 * e;
        const int row = at / kSlice, term = at % kSlice;
        if (line + row >= p.lines) continue;
        auto* out = static_cast<float*>(p.out) + (z * p.lines + line + row) * p.blocks.pitch;
        out[position + term] = static_cast<float>(laid[row * kLaidStep + term]);
      }
    }
    block_barrier();
  }
}
TS_KERNEL(exact_digits_lines, LayLines, 256) { lay<true>(p.of, LinesReader{p.x}); }
TS_KERNEL(exact_digits_places, LayWindow, 256) { lay<true>(p.of, PlacesReader{p.x}); }
TS_KERNEL(exact_digits_taps, LayWindow, 256) { lay<true>(p.of, TapsReader{p.x}); }
TS_KERNEL(exact_numbers_lines, LayLines, 256) { lay<false>(p.of, LinesReader{p.x}); }
TS_KERNEL(exact_numbers_places, LayWindow, 256) { lay<false>(p.of, PlacesReader{p.x}); }
TS_KERNEL(exact_numbers_taps, LayWindow, 256) { lay<false>(p.of, TapsReader{p.x}); }

// --- the totals ------------------------------------------------------------------------------------
// Blocks first, first + 1, ... of every element (17.6), whose sums other kernels made: that of block
// first + q of element e at sums[q·size + e]. The total goes on from `totals`, until the last block.
struct Totals {
  Output of;
  Groups a, b;
  const double* sums;
  double* totals;
  int64_t width, batches, each;  // each: blocks of a segment
  int64_t first, count, begins, ends;
};
TS_KERNEL(exact_totals, Totals, 256) {
  const int64_t size = p.batches * p.of.rows * p.of.columns;
  const int width = static_cast<int>(p.width);
  for (int64_t e = first_item(); e < size; e += item_step()) {
    const int64_t line = quotient(e, p.of.columns), j = e - line * p.of.columns;
    const int64_t z = quotient(line, p.of.rows), i = line - z * p.of.rows, g = p.of.first_batch + z;
    const uint32_t* a = p.a.mu + group_of(p.a, g, p.of.first_row + i) * p.a.segments;
    const uint32_t* b = p.b.mu + group_of(p.b, g, p.of.first_column + j) * p.b.segments;
    double total = p.begins ? 0.0 : p.totals[e];
    for (int64_t q = 0; q < p.count; ++q) {
      const int64_t s = quotient(p.first + q, p.each);
      const int exponent = unit_exponent(a[s], width) + unit_exponent(b[s], width);
      total = with_block(total, p.sums[q * size + e], exponent);
    }
    if (p.ends) put_dot(p.of, z, i, j, static_cast<float>(total));
    else p.totals[e] = total;
  }
}

// --- beside numbers that are not finite ------------------------------------------------------------
// 17.7: such elements are those of `ordered/1` (2.1, 2.2), a thread for each.
struct Ordinary {
  Output of;
  Groups a, b;
  int64_t batches, terms;
  int64_t all_read;  // every term of a group is one of the DOT: a NaN makes it NaN
  const uint32_t* any;
};
struct OrdinaryLines { Ordinary of; Lines a, b; };
struct OrdinaryWindow { Ordinary of; Lines a; Window b; };
constexpr int64_t kOrderedChunk = 128;  // 2.1

template <class A, class B>
TS_INLINE float ordered_dot(int64_t terms, int64_t g, int64_t i, int64_t c, const A& a, const B& b) {
  float total = 0.0f;
  for (int64_t begin = 0; begin < terms; begin += kOrderedChunk) {
    const int64_t end = ts_min(begin + kOrderedChunk, terms);
    float chain = 0.0f;
    TS_ROLLED
    for (int64_t k = begin; k < end; ++k) chain = fma1(a.value(g, i, k), b.value(g, c, k), chain);
    total = begin == 0 ? chain : total + chain;
  }
  return total;
}
template <class A, class B>
TS_INLINE void ordinary(const Ordinary& p, const A& a, const B& b) {
  if (*p.any == 0) return;
  const int64_t size = p.batches * p.of.rows * p.of.columns;
  for (int64_t e = first_item(); e < size; e += item_step()) {
    const int64_t line = quotient(e, p.of.columns), j = e - line * p.of.columns;
    const int64_t z = quotient(line, p.of.rows), i = line - z * p.of.rows;
    const uint32_t mu = ts_max(p.a.whole[group_of(p.a, z, i)], p.b.whole[group_of(p.b, z, j)]);
    if (mu < kInfinityBits) continue;
    const bool is_nan = p.all_read && mu > kInfinityBits;
    put_dot(p.of, z, i, j, is_nan ? bits_float(kCanonicalNan) : ordered_dot(p.terms, z, i, j, a, b));
  }
}
TS_KERNEL(exact_ordinary_lines, OrdinaryLines, 256) {
  ordinary(p.of, LinesReader{p.a}, LinesReader{p.b});
}
TS_KERNEL(exact_ordinary_places, OrdinaryWindow, 256) {
  ordinary(p.of, LinesReader{p.a}, PlacesReader{p.b});
}
TS_KERNEL(exact_ordinary_taps, OrdinaryWindow, 256) {
  ordinary(p.of, LinesReader{p.a}, TapsReader{p.b});
}

}  // namespace tallystick::TS_ISA
