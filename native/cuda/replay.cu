// Bounded `replay/1` (NUMERICS 14.2 to 14.8): the elements of rounded operators with a log. A trainer
// marks the elements near a boundary; a follower takes the marks of another log. Marks are bits by
// position, so no order shows. At the end of a step they become the blocks of COMMITMENTS 10.2.
#include "dots.hpp"
#include "doubt.hpp"

namespace tallystick::TS_ISA {

// --- the bound's sums ----------------------------------------------------------------------------
struct ReadWideMagnitude {
  TS_INLINE static double load(const FoldParams& p, int64_t at, int64_t, int64_t) {
    return magnitude(static_cast<double>(floats(p.x)[at]));
  }
};
TS_FOLD(replay_magnitudes, Sum64, ReadWideMagnitude)

// SUM64 of the squares of each block of 256 places (NUMERICS 3.1) of a tap of a window: a warp for each
// block. SUM64 of these is that of all places, though the patches are laid out in parts.
struct TapSquares {
  Window window;
  int64_t taps, lines, places, blocks;  // lines: groups·taps
  double* out;                          // [lines, blocks]
};
TS_KERNEL(replay_tap_squares, TapSquares, 256) {
  const int64_t items = p.lines * p.blocks, step = item_step() / kWarp;
  for (int64_t item = first_item() / kWarp; item < items; item += step) {
    const int64_t line = quotient(item, p.blocks), block = item - line * p.blocks;
    const int64_t g = quotient(line, p.taps), tap = line - g * p.taps;
    const int64_t first = block * kBlock, end = ts_min(first + kBlock, p.places);
    const auto value = warp_fold<Sum64>(first, end, [&](int64_t i) {
      const double x = static_cast<double>(tap_of(p.window, place_of(p.window, g, i), tap));
      return x * x;
    });
    if (lane_index() == 0) p.out[item] = value;
  }
}

// --- marks ---------------------------------------------------------------------------------------
// Of the elements of one output: which have an entry, and which of the entries point up. Both begin at
// a block of the log. `control` says whose log it is, and counts choices (14.8).
struct Marks {
  uint32_t *entries, *up;
  uint64_t* control;
};
enum Control { kRole, kLeft, kTaken, kTotal };
enum Role { kRecord, kFollow, kCount };  // kCount: a follower sums every entry's element exactly
// Other threads set and clear other bits of a word at the same time.
TS_INLINE bool bit_at(const uint32_t* words, int64_t at) {
  return atomic_read(words + (at >> 5)) >> (at & 31) & 1;
}
TS_INLINE void mark(const Marks& m, int64_t at, bool up) {
  const uint32_t bit = uint32_t(1) << (at & 31);
  atomic_or(m.entries + (at >> 5), bit);
  if (up) atomic_or(m.up + (at >> 5), bit);
}
TS_INLINE void unmark(const Marks& m, int64_t at) {
  atomic_and(m.entries + (at >> 5), ~(uint32_t(1) << (at & 31)));
}

// --- an element ----------------------------------------------------------------------------------
// What w says of an element. Where its exact sum is needed, `asks` says for what.
enum Asks : uint32_t { kNothing, kValue, kEntry, kRightEntry };  // kRightEntry: it is named like R(w)
struct Said {
  float value;
  uint32_t asks;
};
TS_INLINE int64_t direction_of(const Marks& m, int64_t at) { return bit_at(m.up, at) ? kUp : kDown; }
// The trainer (14.6).
TS_INLINE Said recorded(const Marks& m, int64_t at, double w, double bound, int b) {
  const Around near = around(w, bound, b);
  const float r = grid1(w, b);
  if (!near.finite || near.high - near.low > 1) return {r, kValue};
  if (near.close) mark(m, at, index_of(r, b) == near.high);
  return {r, kNothing};
}
// A follower (14.5 to 14.7). |w - v*| <= share·E.
TS_INLINE Said followed(const Marks& m, uint64_t role, int64_t at, double w, double bound,
                        double share, int b) {
  const float r = grid1(w, b);
  if (!bit_at(m.entries, at)) {
    const Near near = {w, bound, false};
    return {r, judge(near, share, b).doubt ? kValue : kNothing};
  }
  const int64_t direction = direction_of(m, at);
  const Around near = around(w, bound, b);
  const bool right = near.close && (direction == kUp ? near.high : near.low) == index_of(r, b);
  if (right) {
    if (role == kCount) return {r, kRightEntry};
    atomic_add(m.control + kLeft, uint64_t(1));
    return {r, kNothing};
  }
  const Beyond read = read_beyond_doubt(w, bound, near, direction, b);
  if (read.forged) unmark(m, at);
  return {r, read.forged || read.without_effect ? kNothing : kEntry};
}
TS_INLINE Said said_of(const Marks& m, int64_t at, double w, double bound, double share, bool nan,
                       int b) {
  const uint64_t role = m.control[kRole];
  if (nan) {  // 13.4; and 14.7: a term is not finite
    if (role != kRecord && bit_at(m.entries, at)) unmark(m, at);
    return {bits_float(kCanonicalNan), kNothing};
  }
  return role == kRecord ? recorded(m, at, w, bound, b)
                         : followed(m, role, at, w, bound, share, b);
}
// The value of an element with an entry, by its exact sum. One thread (`speaks`) marks and counts.
TS_INLINE float judged(const Marks& m, int64_t at, const ExactAcc& acc, double bound, bool right,
                       bool speaks, int b) {
  if (acc.flags) {
    if (speaks) unmark(m, at);
    return acc_round(acc, b);
  }
  const int64_t direction = direction_of(m, at);
  const Doubt d = doubt_of(acc, bound, direction, b);
  const int64_t chosen = !d.open ? d.nearest : direction == kUp ? d.high : d.low;
  if (speaks) {
    if (d.forged && !right) unmark(m, at);
    if (d.open || right) atomic_add(m.control + kLeft, uint64_t(1));
    if (chosen != d.nearest) atomic_add(m.control + kTaken, uint64_t(1));
  }
  return value_at(chosen, b);
}

// --- products ------------------------------------------------------------------------------------
struct ReplayLines { Decision of; Lines a, b; Marks marks; };
struct ReplayWindow { Decision of; Lines a; Window b; Marks marks; };

// A warp takes 32 elements at a time; together it sums the elements that ask. Meanwhile a thread keeps
// nothing of its own element but what it asks: else registers run out.
template <class A, class B>
TS_INLINE void decide(const Decision& p, const A& a, const B& b, const Marks& marks) {
  const int64_t count = p.w_batches * p.w_rows * p.w_columns;
  const int bits = static_cast<int>(p.bits);
  for (int64_t first = first_item() - lane_index(); first < count; first += item_step()) {
    uint32_t own_asks = kNothing;
    if (first + lane_index() < count) {
      const Element own = element_of(p, first + lane_index());
      const Near near = near_of(p, own);
      const Said said = said_of(marks, position_of(p, own), near.w, near.bound, p.share.value,
                                near.nan, bits);
      own_asks = said.asks;
      if (own_asks == kNothing) put_value(p, own, said.value);
    }
    uint32_t asking = warp_ballot(own_asks != kNothing);
    for (; asking; asking &= asking - 1) {
      const uint32_t lane = static_cast<uint32_t>(trailing_zeros(asking));
      const uint32_t asks = warp_from(own_asks, lane);
      const Element e = element_of(p, first + lane);
      const auto term = term_of(p, e, a, b);
      const float value =
          asks == kValue ? warp_exact(terms_of(p), bits, term)
                         : judged(marks, position_of(p, e), warp_total(terms_of(p), term),
                                  near_of(p, e).bound, asks == kRightEntry, lane_index() == 0, bits);
      if (lane_index() == 0) put_value(p, e, value);
    }
  }
}

TS_KERNEL(replay_decide_lines, ReplayLines, 256) {
  decide(p.of, LinesReader{p.a}, LinesReader{p.b}, p.marks);
}
TS_KERNEL(replay_decide_places, ReplayWindow, 256) {
  decide(p.of, LinesReader{p.a}, PlacesReader{p.b}, p.marks);
}
TS_KERNEL(replay_decide_taps, ReplayWindow, 256) {
  decide(p.of, LinesReader{p.a}, TapsReader{p.b}, p.marks);
}

// --- sums ----------------------------------------------------------------------------------------
struct ReplaySum {
  SumParams of;
  const double* magnitudes;  // SUM64 of each line's
  F64 factor;                // RN64(K)·C of 14.4
  Marks marks;
};
// As rounded_sum_end. w is the running sum: additions in binary64, in a tree (14.3).
TS_KERNEL(replay_sum_end, ReplaySum, 256) {
  TS_SHARED(uint32_t, asks, 256);
  TS_SHARED(int64_t, room, kExactRoom);
  const int64_t outputs = p.of.at.outputs, n = p.of.at.n;
  const int bits = static_cast<int>(p.of.bits);
  for (int64_t first = first_item() - thread_index(); first < outputs; first += item_step()) {
    const int64_t l = first + thread_index();
    asks[thread_index()] = kNothing;
    if (l < outputs) {
      const double w = running_of(p.of, l).sum, size = p.magnitudes[l];
      const Said said = said_of(p.marks, l, w, p.factor.value * size, 1.0, size != size, bits);
      asks[thread_index()] = said.asks;
      if (said.asks == kNothing) put_sum(p.of, l, said.value);
    }
    block_barrier();
    for (uint32_t i = 0; i < thread_count(); ++i) {
      if (asks[i] == kNothing) continue;
      const int64_t base = base_of(p.of.at, first + i);
      const ExactAcc acc =
          block_total(n, [&](int64_t k) { return term_at(p.of, base, k); }, room);
      if (thread_index() != 0) continue;
      const double bound = p.factor.value * p.magnitudes[first + i];
      const float value = asks[i] == kValue ? acc_round(acc, bits)
                                            : judged(p.marks, first + i, acc, bound,
                                                     asks[i] == kRightEntry, true, bits);
      put_sum(p.of, first + i, value);
    }
    block_barrier();
  }
}

// --- blocks --------------------------------------------------------------------------------------
// A block has 4,096 elements, 128 words of marks (COMMITMENTS 10.2). An entry is written as
// 2·place + direction, place being that in the block.
constexpr int64_t kBlockWords = 128, kLaneWords = kBlockWords / kWarp;
struct LogBlocks {
  uint32_t *entries, *up;
  uint16_t* counts;  // of each block
  int64_t* offsets;  // where its words begin
  uint16_t* words;
  uint64_t* control;
  int64_t blocks;
  int64_t begin, room;    // `words` holds the words from number `begin` on, at most `room` of them
};
// The number of entries of each block: a warp for each.
TS_KERNEL(replay_count, LogBlocks, 256) {
  const int64_t step = item_step() / kWarp;
  for (int64_t block = first_item() / kWarp; block < p.blocks; block += step) {
    const uint32_t* own = p.entries + block * kBlockWords + lane_index() * kLaneWords;
    uint32_t count = 0;
    for (int i = 0; i < kLaneWords; ++i) count += bit_count(own[i]);
    for (uint32_t s = kWarp / 2; s >= 1; s /= 2) count += warp_xor(count, s);
    if (lane_index() == 0) p.counts[block] = static_cast<uint16_t>(count);
  }
}
// Where each block's words begin, and their number altogether: one block of threads, each of which has
// neighbouring blocks of the log.
TS_KERNEL(replay_offsets, LogBlocks, 1024) {
  TS_SHARED(int64_t, sums, 2 * 1024);
  const int64_t each = quotient(p.blocks + thread_count() - 1, thread_count());
  const int64_t from = ts_min(p.blocks, thread_index() * each);
  const int64_t to = ts_min(p.blocks, from + each);
  int64_t own = 0;
  for (int64_t block = from; block < to; ++block) own += p.counts[block];
  int64_t* now = sums;
  int64_t* next = sums + 1024;
  now[thread_index()] = own;
  block_barrier();
  for (uint32_t s = 1; s < thread_count(); s *= 2) {
    const int64_t before = thread_index() >= s ? now[thread_index() - s] : 0;
    next[thread_index()] = now[thread_index()] + before;
    if (!has_fault(Fault::missing_barrier)) block_barrier();
    int64_t* const turned = now;
    now = next;
    next = turned;
  }
  int64_t at = now[thread_index()] - own;
  for (int64_t block = from; block < to; ++block) {
    p.offsets[block] = at;
    at += p.counts[block];
  }
  if (thread_index() == thread_count() - 1) p.control[kTotal] = static_cast<uint64_t>(at);
}
// The words of each block, in order: a warp for each. Another launch writes those that have no room.
TS_KERNEL(replay_compact, LogBlocks, 256) {
  const int64_t step = item_step() / kWarp;
  for (int64_t block = first_item() / kWarp; block < p.blocks; block += step) {
    if (p.counts[block] == 0) continue;
    const int64_t own = block * kBlockWords + lane_index() * kLaneWords;
    uint32_t count = 0;
    for (int i = 0; i < kLaneWords; ++i) count += bit_count(p.entries[own + i]);
    int64_t at = p.offsets[block];
    for (uint32_t lane = 0; lane < kWarp; ++lane) {
      const uint32_t other = warp_from(count, lane);
      if (lane < lane_index()) at += other;
    }
    for (int i = 0; i < kLaneWords; ++i) {
      const uint32_t up = p.up[own + i];
      for (uint32_t left = p.entries[own + i]; left; left &= left - 1) {
        const uint32_t bit = static_cast<uint32_t>(trailing_zeros(left));
        const uint32_t place = 32 * (lane_index() * kLaneWords + i) + bit;
        const int64_t to = at - p.begin;
        if (to >= 0 && to < p.room) p.words[to] = static_cast<uint16_t>(2 * place + (up >> bit & 1));
        ++at;
      }
    }
  }
}
// The inverse: marks of the words of a followed log. The marks are clear.
TS_KERNEL(replay_spread, LogBlocks, 256) {
  const int64_t step = item_step() / kWarp;
  for (int64_t block = first_item() / kWarp; block < p.blocks; block += step) {
    const int64_t from = p.offsets[block];
    for (int64_t k = lane_index(); k < p.counts[block]; k += kWarp) {
      const int64_t at = from + k - p.begin;
      if (at < 0 || at >= p.room) continue;  // of another launch
      const uint32_t word = p.words[at], place = word >> 1;
      const uint32_t bit = uint32_t(1) << (place & 31);
      atomic_or(p.entries + block * kBlockWords + (place >> 5), bit);
      if (word & 1) atomic_or(p.up + block * kBlockWords + (place >> 5), bit);
    }
  }
}

}  // namespace tallystick::TS_ISA
