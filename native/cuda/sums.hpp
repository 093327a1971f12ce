// Reductions of a row by a warp or by a block: the SUM rule (NUMERICS 3.1) and what is combined in
// any order. Every family that sums uses these.
//
// A warp fits the rule: lane l of a block of 256 elements is lane l of a warp, which adds 8 elements,
// and the halving tree is five exchanges. After them every lane holds the block's value. SUM of one
// value is the value, since -0 + v is v; so blocks of blocks need no special case (3.2).
//
// A functor f(i) gives the value of element i of the row. It is called once for each element, by the
// warp `block of i modulo warps` and the lane `i modulo 32`. It may store. All calls have ended, and
// what they stored is seen by the block, when a block_fold or a BlockTeam's fold returns.
#pragma once
#include "device.hpp"

#include "tallystick/simd_f32.hpp"
#include "tallystick/sum_rule.hpp"

namespace tallystick::TS_ISA {

constexpr int64_t kBlock = kSumBlock;
constexpr int kEach = kSumBlock / kSumLanes;  // elements of a lane in a block
constexpr int64_t kChunk = kBlock * kBlock;   // elements below a value of the next level

// --- folds: what is combined, and how ------------------------------------------------------------
// identity() is neutral; empty() is the result over no element. `any_order`: merge is associative and
// commutative, so the tree's shape is free. moved() exchanges a state with another lane of the warp.
template <class T, bool AnyOrder>
struct Numbers {
  using State = T;
  static constexpr bool any_order = AnyOrder;
  TS_INLINE static State moved(State a, uint32_t mask) { return warp_xor(a, mask); }
};
struct Sum : Numbers<float, false> {
  TS_INLINE static State identity() { return bits_float(kMinusZero); }
  TS_INLINE static State empty() { return 0.0f; }
  TS_INLINE static State merge(State a, State b) { return a + b; }
};
struct Sum64 : Numbers<double, false> {
  TS_INLINE static State identity() { return -0.0; }
  TS_INLINE static State empty() { return 0.0; }
  TS_INLINE static State merge(State a, State b) { return a + b; }
};
// Two SUMs in one pass.
struct Two { float a, b; };
struct SumTwo {
  using State = Two;
  static constexpr bool any_order = false;
  TS_INLINE static State identity() { return {Sum::identity(), Sum::identity()}; }
  TS_INLINE static State empty() { return {0.0f, 0.0f}; }
  TS_INLINE static State merge(State x, State y) { return {x.a + y.a, x.b + y.b}; }
  TS_INLINE static State moved(State x, uint32_t mask) {
    return {warp_xor(x.a, mask), warp_xor(x.b, mask)};
  }
};
struct Max : Numbers<float, true> {
  TS_INLINE static State identity() { return bits_float(0xff800000u); }
  TS_INLINE static State empty() { return identity(); }
  TS_INLINE static State merge(State a, State b) { return max1(a, b); }
};
struct Min : Numbers<float, true> {
  TS_INLINE static State identity() { return bits_float(0x7f800000u); }
  TS_INLINE static State empty() { return identity(); }
  TS_INLINE static State merge(State a, State b) { return min1(a, b); }
};
constexpr int64_t kLeast = -0x7fffffffffffffffll - 1, kGreatest = 0x7fffffffffffffffll;
struct WholeSum : Numbers<int64_t, true> {  // wrapping (3.4)
  TS_INLINE static State identity() { return 0; }
  TS_INLINE static State empty() { return 0; }
  TS_INLINE static State merge(State a, State b) {
    return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
  }
};
struct WholeMax : Numbers<int64_t, true> {
  TS_INLINE static State identity() { return kLeast; }
  TS_INLINE static State empty() { return kLeast; }
  TS_INLINE static State merge(State a, State b) { return ts_max(a, b); }
};
struct WholeMin : Numbers<int64_t, true> {
  TS_INLINE static State identity() { return kGreatest; }
  TS_INLINE static State empty() { return kGreatest; }
  TS_INLINE static State merge(State a, State b) { return ts_min(a, b); }
};
// The lowest index among the maxima, NaN above all, one zero (3.5).
template <class T>
struct Placed { T value; int64_t index; };
template <class T>
struct Place {
  using State = Placed<T>;
  static constexpr bool any_order = true;
  TS_INLINE static State identity();
  TS_INLINE static State empty() { return identity(); }
  TS_INLINE static State merge(State a, State b) {
    const bool a_nan = a.value != a.value, b_nan = b.value != b.value;
    const bool tie = a_nan == b_nan && (a_nan || a.value == b.value);
    const bool second = tie ? b.index < a.index : a_nan != b_nan ? b_nan : a.value < b.value;
    return second ? b : a;
  }
  TS_INLINE static State moved(State a, uint32_t mask) {
    return {warp_xor(a.value, mask), warp_xor(a.index, mask)};
  }
};
template <>
TS_INLINE Placed<float> Place<float>::identity() { return {bits_float(0xff800000u), kGreatest}; }
template <>
TS_INLINE Placed<int64_t> Place<int64_t>::identity() { return {kLeast, kGreatest}; }

// --- a warp --------------------------------------------------------------------------------------
// The halving tree over the lanes; every lane gets the result.
template <class Fold>
TS_INLINE typename Fold::State fold_lanes(typename Fold::State acc) {
  TS_UNROLL
  for (uint32_t s = kWarp / 2; s >= 1; s /= 2) acc = Fold::merge(acc, Fold::moved(acc, s));
  return acc;
}

// This lane's share of the block [base, min(base + 256, last)), onto acc. The loads do not wait for
// each other.
template <class Fold, class F>
TS_INLINE typename Fold::State fold_own(typename Fold::State acc, int64_t base, int64_t last,
                                        const F& f) {
  const int64_t own = base + lane_index();
  typename Fold::State value[kEach];
  if (base + kBlock <= last) {
    TS_UNROLL
    for (int k = 0; k < kEach; ++k) value[k] = f(own + k * kWarp);
  } else {
    TS_UNROLL
    for (int k = 0; k < kEach; ++k) {
      value[k] = Fold::identity();
      if (own + k * kWarp < last) value[k] = f(own + k * kWarp);
    }
  }
  TS_UNROLL
  for (int k = 0; k < kEach; ++k) acc = Fold::merge(acc, value[k]);
  return acc;
}
template <class Fold, class F>
TS_INLINE typename Fold::State fold_one_block(int64_t base, int64_t last, const F& f) {
  return fold_lanes<Fold>(fold_own<Fold>(Fold::identity(), base, last, f));
}

// The levels above the blocks, spread over the lanes of a warp: SUM of a stream of values. All lanes
// call each function, with one value. 256^4 values at most: 2^40 elements, above any device's memory.
template <class Fold>
struct Levels {
  using State = typename Fold::State;
  static constexpr int kDepth = 4;
  State level[kDepth];
  int64_t seen;

  TS_INLINE void begin() {
    seen = 0;
    TS_UNROLL
    for (int k = 0; k < kDepth; ++k) level[k] = Fold::identity();
  }
  TS_INLINE void add(int k, State value, int64_t place) {
    if (lane_index() == place % kSumLanes) level[k] = Fold::merge(level[k], value);
  }
  TS_INLINE void push(State value) {
    int64_t place = seen++;
    TS_UNROLL
    for (int k = 0; k < kDepth; ++k) {
      add(k, value, place);
      if ((place + 1) % kBlock != 0) return;
      value = fold_lanes<Fold>(level[k]);  // its block is full
      level[k] = Fold::identity();
      place /= kBlock;
    }
  }
  // A level that was just emptied gives -0, which is neutral.
  TS_INLINE State finish() {
    State value = fold_lanes<Fold>(level[0]);
    int64_t above = seen / kBlock;
    TS_UNROLL
    for (int k = 1; k < kDepth; ++k) {
      if (above == 0) return value;
      add(k, value, above);
      value = fold_lanes<Fold>(level[k]);
      above /= kBlock;
    }
    return value;
  }
};

// The fold of elements [first, last), `first` a multiple of 256, by one warp; every lane gets it.
template <class Fold, class F>
TS_INLINE typename Fold::State warp_fold(int64_t first, int64_t last, const F& f) {
  if (first >= last) return Fold::empty();
  if constexpr (Fold::any_order) {
    auto acc = Fold::identity();
    for (int64_t base = first; base < last; base += kBlock)
      acc = fold_own<Fold>(acc, base, last, f);
    return fold_lanes<Fold>(acc);
  } else {
    if (last - first <= kBlock) return fold_one_block<Fold>(first, last, f);
    Levels<Fold> levels;
    levels.begin();
    for (int64_t base = first; base < last; base += kBlock)
      levels.push(fold_one_block<Fold>(base, last, f));
    return levels.finish();
  }
}

// --- a block of threads --------------------------------------------------------------------------
constexpr size_t kRoom = 2 * kSumBlock;  // states of shared memory that block_fold needs

// As warp_fold, by all warps of the block; every thread gets the result.
template <class Fold, class F>
TS_INLINE typename Fold::State block_fold(int64_t first, int64_t last, const F& f,
                                          typename Fold::State* room) {
  const int64_t warp = warp_index(), warps = thread_count() / kWarp;
  block_barrier();  // the room may still be read
  if (first >= last) return Fold::empty();
  if constexpr (Fold::any_order) {
    auto acc = Fold::identity();
    for (int64_t base = first + warp * kBlock; base < last; base += warps * kBlock)
      acc = fold_own<Fold>(acc, base, last, f);
    acc = fold_lanes<Fold>(acc);
    if (lane_index() == 0) room[warp] = acc;
    if (!has_fault(Fault::missing_barrier)) block_barrier();
    return fold_one_block<Fold>(0, warps, [&](int64_t i) { return room[i]; });
  } else {
    // A chunk is 256 blocks. Two halves of the room take turns, so that one barrier is enough.
    Levels<Fold> levels;
    levels.begin();
    for (int64_t chunk = first; chunk < last; chunk += kChunk) {
      typename Fold::State* values = room + (chunk - first) / kChunk % 2 * kBlock;
      const int64_t end = ts_min(chunk + kChunk, last);
      const int64_t blocks = (end - chunk + kBlock - 1) / kBlock;
      for (int64_t b = warp; b < blocks; b += warps) {
        const auto value = fold_one_block<Fold>(chunk + b * kBlock, end, f);
        if (lane_index() == 0) values[b] = value;
      }
      if (!has_fault(Fault::missing_barrier)) block_barrier();
      const auto value = fold_one_block<Fold>(0, blocks, [&](int64_t i) { return values[i]; });
      if (last - first <= kChunk) return value;
      levels.push(value);
    }
    return levels.finish();
  }
}

// put(i, get(i)) for i = first, first + step, ... below count. The gets of several i do not wait for
// the puts before them, whose memory they may share: get(i) reads element i and no other.
template <class Get, class Put>
TS_INLINE void each_item(int64_t first, int64_t step, int64_t count, const Get& get, const Put& put) {
  constexpr int kAtOnce = 4;
  decltype(get(first)) value[kAtOnce] = {};
  for (int64_t i = first; i < count; i += kAtOnce * step) {
    TS_UNROLL
    for (int k = 0; k < kAtOnce; ++k)
      if (i + k * step < count) value[k] = get(i + k * step);
    TS_UNROLL
    for (int k = 0; k < kAtOnce; ++k)
      if (i + k * step < count) put(i + k * step, value[k]);
  }
}

// --- teams: the threads that share a row ---------------------------------------------------------
// A kernel over rows is written once, for a team. fold() as above; each(n, get, put) as each_item,
// over the row; is_first() holds for one thread.
// In a WarpTeam an element belongs to the same thread in every call. In a BlockTeam it does not.
struct WarpTeam {
  TS_INLINE static bool is_first() { return lane_index() == 0; }
  template <class Fold, class F>
  TS_INLINE typename Fold::State fold(int64_t n, const F& f) const { return warp_fold<Fold>(0, n, f); }
  template <class Get, class Put>
  TS_INLINE void each(int64_t n, const Get& get, const Put& put) const {
    each_item(lane_index(), kWarp, n, get, put);
  }
};
struct BlockTeam {
  double* room;  // kRoom states of at most 8 bytes
  TS_INLINE static bool is_first() { return thread_index() == 0; }
  template <class Fold, class F>
  TS_INLINE typename Fold::State fold(int64_t n, const F& f) const {
    static_assert(sizeof(typename Fold::State) <= sizeof(double), "the room is too small");
    return block_fold<Fold>(0, n, f, reinterpret_cast<typename Fold::State*>(room));
  }
  template <class Get, class Put>
  TS_INLINE void each(int64_t n, const Get& get, const Put& put) const {
    each_item(thread_index(), thread_count(), n, get, put);
  }
};

// Two kernels over p.rows rows: NAME_warp, a row each warp, and NAME_block, a row each block.
// ROW(team, p, r) computes row r. The host chooses by the rows' length.
#define TS_ROWS(name, Params, ROW)                                            \
  TS_KERNEL(name##_warp, Params, 256) {                                       \
    const int64_t step = item_step() / kWarp;                                 \
    for (int64_t r = first_item() / kWarp; r < p.rows; r += step)             \
      ROW(WarpTeam{}, p, r);                                                  \
  }                                                                           \
  TS_KERNEL(name##_block, Params, 1024) {                                     \
    TS_SHARED(double, room, kRoom);                                           \
    for (int64_t r = block_x(); r < p.rows; r += grid_x()) ROW(BlockTeam{room}, p, r); \
  }

}  // namespace tallystick::TS_ISA
