// Kernels of reductions over a tensor: a fold of sums.hpp, a functor that reads an element, and four
// shapes of the work. products/cuda/folds.py chooses among them. The choice changes no bit.
//
//   NAME_thin      a thread for each output, of at most 32 elements
//   NAME_warp      a warp for each output, or for each piece of one
//   NAME_block     a block for each output, or for each piece of one
//   NAME_columns   32 outputs side by side for each block, or a piece of them: neighbouring threads
//                  read neighbouring columns
//
// A piece is 256 or 65,536 elements, so its value is one of the rule's own (NUMERICS 3.1). With more
// than one piece the states go to scratch memory, and another launch folds them.
#pragma once
#include "sums.hpp"

namespace tallystick::TS_ISA {

// Element i of output o lies at
//   o / inner * outer_step + o % inner + (i / run * run_step + i % run * step).
// Its piece q goes to (o / inner * pieces + q) * inner + o % inner.
struct FoldParams {
  const void *x, *y;      // operands with these places
  const void *a, *b;      // and with one value for each output, or for each element of an output
  void* out;
  int64_t outputs, n;
  int64_t inner, outer_step, run, run_step, step;
  int64_t pieces, piece;  // their number, and the elements of one
  const float* divisor_at;  // a divisor on the device, or null
  int64_t divides;          // by one that the host knows
  F64 divisor;
};

TS_INLINE int64_t base_of(const FoldParams& p, int64_t o) {
  const int64_t outer = quotient(o, p.inner);
  return outer * p.outer_step + (o - outer * p.inner);
}
TS_INLINE int64_t offset_of(const FoldParams& p, int64_t i) {
  if (i < p.run) return i * p.step;
  const int64_t run = quotient(i, p.run);
  return run * p.run_step + (i - run * p.run) * p.step;
}

// --- what is stored ------------------------------------------------------------------------------
// A quotient is RN32 in binary32, RN64 in binary64.
TS_INLINE void put_state(const FoldParams& p, int64_t at, float s) {
  if (p.divisor_at) s = s / *p.divisor_at;
  else if (p.divides) s = s / static_cast<float>(p.divisor.value);
  if (has_fault(Fault::one_bit)) s = bits_float(float_bits(s) ^ 1);
  put1(static_cast<float*>(p.out) + at, s);
}
TS_INLINE void put_state(const FoldParams& p, int64_t at, double s) {
  if (p.divides) s = s / p.divisor.value;
  static_cast<double*>(p.out)[at] = s;
}
TS_INLINE void put_state(const FoldParams& p, int64_t at, int64_t s) {
  static_cast<int64_t*>(p.out)[at] = s;
}
template <class T>
TS_INLINE void put_state(const FoldParams& p, int64_t at, Placed<T> s) {
  static_cast<int64_t*>(p.out)[at] = s.index;
}

template <class State>
TS_INLINE void put_piece(const FoldParams& p, int64_t o, int64_t q, State s) {
  const int64_t outer = quotient(o, p.inner);
  const int64_t at = (outer * p.pieces + q) * p.inner + (o - outer * p.inner);
  if (p.pieces > 1) static_cast<State*>(p.out)[at] = s;
  else put_state(p, at, s);
}

// --- what is read --------------------------------------------------------------------------------
// load(p, at, o, i): the state of element i of output o, which lies at `at`.
template <class T>
struct Read {
  TS_INLINE static T load(const FoldParams& p, int64_t at, int64_t, int64_t) {
    return static_cast<const T*>(p.x)[at];
  }
};
TS_INLINE const float* floats(const void* p) { return static_cast<const float*>(p); }
TS_INLINE const double* doubles(const void* p) { return static_cast<const double*>(p); }

// --- the four shapes -----------------------------------------------------------------------------
// The halving tree in one thread.
template <class Fold, int Half>
TS_INLINE void halve(typename Fold::State (&lane)[kSumLanes]) {
  TS_UNROLL
  for (int i = 0; i < Half; ++i) lane[i] = Fold::merge(lane[i], lane[i + Half]);
  if constexpr (Half > 1) halve<Fold, Half / 2>(lane);
}
template <class Fold, class Load>
TS_INLINE void fold_thin(const FoldParams& p) {
  for (int64_t o = first_item(); o < p.outputs; o += item_step()) {
    if (p.n == 0) {
      put_state(p, o, Fold::empty());
      continue;
    }
    const int64_t base = base_of(p, o);
    typename Fold::State lane[kSumLanes];
    TS_UNROLL
    for (int i = 0; i < static_cast<int>(kSumLanes); ++i) {
      lane[i] = Fold::identity();
      if (i < p.n) lane[i] = Fold::merge(lane[i], Load::load(p, base + offset_of(p, i), o, i));
    }
    halve<Fold, kSumLanes / 2>(lane);
    put_state(p, o, lane[0]);
  }
}

template <class Fold, class Load>
TS_INLINE void fold_warp(const FoldParams& p) {
  const int64_t items = p.outputs * p.pieces, step = item_step() / kWarp;
  for (int64_t item = first_item() / kWarp; item < items; item += step) {
    const int64_t o = quotient(item, p.pieces), q = item - o * p.pieces, base = base_of(p, o);
    const auto value = warp_fold<Fold>(q * p.piece, ts_min((q + 1) * p.piece, p.n), [&](int64_t i) {
      return Load::load(p, base + offset_of(p, i), o, i);
    });
    if (lane_index() == 0) put_piece(p, o, q, value);
  }
}

template <class Fold, class Load>
TS_INLINE void fold_block(const FoldParams& p, typename Fold::State* room) {
  const int64_t items = p.outputs * p.pieces;
  for (int64_t item = block_x(); item < items; item += grid_x()) {
    const int64_t o = quotient(item, p.pieces), q = item - o * p.pieces, base = base_of(p, o);
    const auto load = [&](int64_t i) { return Load::load(p, base + offset_of(p, i), o, i); };
    const auto value = block_fold<Fold>(q * p.piece, ts_min((q + 1) * p.piece, p.n), load, room);
    if (thread_index() == 0) put_piece(p, o, q, value);
  }
}

// 1,024 threads: warp w is lane w of the rule for 32 columns. Then the tile is turned in shared
// memory, and warp w has column w with its lanes.
constexpr int kTile = 32, kTileRow = kTile + 1;
template <class Fold, class Load>
TS_INLINE void fold_columns(const FoldParams& p, typename Fold::State* room) {
  const uint32_t column = lane_index(), row = warp_index();
  const int64_t tiles = (p.outputs + kTile - 1) / kTile, items = tiles * p.pieces;
  int turn = 0;  // two tiles take turns, so that one barrier is enough
  for (int64_t item = block_x(); item < items; item += grid_x()) {
    const int64_t q = quotient(item, tiles), first_column = (item - q * tiles) * kTile;
    const int64_t o = first_column + column, base = o < p.outputs ? base_of(p, o) : 0;
    const int64_t end = ts_min((q + 1) * p.piece, p.n);
    Levels<Fold> levels;
    levels.begin();
    for (int64_t block = q * p.piece; block < end; block += kBlock) {
      typename Fold::State value[kEach], acc = Fold::identity();
      TS_UNROLL
      for (int k = 0; k < kEach; ++k) {
        const int64_t i = block + row + k * kTile;
        value[k] = Fold::identity();
        if (o < p.outputs && i < end) value[k] = Load::load(p, base + i * p.step, o, i);
      }
      TS_UNROLL
      for (int k = 0; k < kEach; ++k) acc = Fold::merge(acc, value[k]);
      typename Fold::State* tile = room + turn * kTile * kTileRow;
      tile[row * kTileRow + column] = acc;
      if (!has_fault(Fault::missing_barrier)) block_barrier();
      levels.push(fold_lanes<Fold>(tile[column * kTileRow + row]));
      turn ^= 1;
    }
    const auto value = levels.finish();
    if (column == 0 && first_column + row < p.outputs) put_piece(p, first_column + row, q, value);
  }
}

#define TS_FOLD_ROWS(name, Fold, Load)                                             \
  TS_KERNEL(name##_thin, FoldParams, 256) { fold_thin<Fold, Load>(p); }            \
  TS_KERNEL(name##_warp, FoldParams, 256) { fold_warp<Fold, Load>(p); }            \
  TS_KERNEL(name##_block, FoldParams, 1024) {                                      \
    TS_SHARED(Fold::State, room, kRoom);                                           \
    fold_block<Fold, Load>(p, room);                                               \
  }
#define TS_FOLD_COLUMNS(name, Fold, Load)                                          \
  TS_KERNEL(name##_columns, FoldParams, 1024) {                                    \
    TS_SHARED(Fold::State, room, 2 * kTile * kTileRow);                            \
    fold_columns<Fold, Load>(p, room);                                             \
  }
#define TS_FOLD(name, Fold, Load)     \
  TS_FOLD_ROWS(name, Fold, Load)      \
  TS_FOLD_COLUMNS(name, Fold, Load)

}  // namespace tallystick::TS_ISA
