// The scatter class (NUMERICS 4): contributions to one destination in ascending source order.
//
// The sources are sorted by destination, stably: 8 bits of the destination at a time, beginning with
// the lowest, in three kernels a pass. Then every element of a destination walks its own sources.
// Nothing depends on the order of blocks or threads: sums over counts are of integers.
#include "device.hpp"

#include "tallystick/simd_f32.hpp"

namespace tallystick::TS_ISA {

constexpr uint32_t kDigits = 256;
constexpr uint32_t kSortWarps = kDigits / kWarp;
constexpr int64_t kRun = 512;                // sources of a warp
constexpr int64_t kPart = kRun * kSortWarps;  // sources of a block; scatter.py has it too

struct Sort {
  const int64_t* index;
  int64_t count, size;   // sources, destinations
  const uint32_t* from;  // the sources in the order of the last pass; null: as they stand
  uint32_t* to;
  uint32_t* table;  // per digit and block: how many sources, then the place of the first
  int64_t shift;
};

TS_INLINE uint32_t source_at(const uint32_t* order, int64_t j) {
  return order ? order[j] : static_cast<uint32_t>(j);
}
// An index out of range has been refused; until the host knows it, the kernels stay in memory.
TS_INLINE int64_t destination_of(const Sort& p, uint32_t source) {
  const int64_t at = p.index[source];
  return at >= 0 && at < p.size ? at : 0;
}
TS_INLINE uint32_t digit_of(const Sort& p, uint32_t source) {
  return static_cast<uint32_t>(destination_of(p, source) >> p.shift) % kDigits;
}

TS_KERNEL(scatter_count, Sort, 256) {
  TS_SHARED(uint32_t, found, kDigits);
  const uint32_t thread = thread_index();
  found[thread] = 0;
  block_barrier();
  const int64_t begin = block_x() * kPart, end = ts_min(begin + kPart, p.count);
  for (int64_t j = begin + thread; j < end; j += kDigits)
    atomic_add(found + digit_of(p, source_at(p.from, j)), 1);
  block_barrier();
  p.table[static_cast<int64_t>(thread) * grid_x() + block_x()] = found[thread];
}

// Every number becomes the sum of those before it. One block.
struct Scan {
  uint32_t* table;
  int64_t count;
};
TS_KERNEL(scatter_scan, Scan, 256) {
  TS_SHARED(uint32_t, sums, 2 * kDigits);
  const uint32_t thread = thread_index();
  const int64_t each = (p.count + kDigits - 1) / kDigits;
  const int64_t begin = ts_min(thread * each, p.count), end = ts_min(begin + each, p.count);
  uint32_t sum = 0;
  for (int64_t i = begin; i < end; ++i) sum += p.table[i];
  uint32_t *now = sums, *next = sums + kDigits;
  now[thread] = sum;
  for (uint32_t reach = 1; reach < kDigits; reach *= 2) {
    block_barrier();
    next[thread] = now[thread] + (thread >= reach ? now[thread - reach] : 0);
    uint32_t* other = now;
    now = next;
    next = other;
  }
  uint32_t before = now[thread] - sum;
  for (int64_t i = begin; i < end; ++i) {
    const uint32_t here = p.table[i];
    p.table[i] = before;
    before += here;
  }
}

TS_KERNEL(scatter_place, Sort, 256) {
  // Per warp and digit: how many sources, then the place of the next one.
  TS_SHARED(uint32_t, next, kSortWarps * kDigits);
  const uint32_t thread = thread_index(), lane = lane_index();
  uint32_t* own = next + warp_index() * kDigits;
  for (uint32_t k = 0; k < kSortWarps; ++k) next[k * kDigits + thread] = 0;
  block_barrier();
  const int64_t begin = block_x() * kPart + warp_index() * kRun;
  const int64_t end = ts_min(begin + kRun, p.count);
  for (int64_t j = begin + lane; j < end; j += kWarp)
    atomic_add(own + digit_of(p, source_at(p.from, j)), 1);
  block_barrier();
  uint32_t place = p.table[static_cast<int64_t>(thread) * grid_x() + block_x()];
  for (uint32_t k = 0; k < kSortWarps; ++k) {
    const uint32_t here = next[k * kDigits + thread];
    next[k * kDigits + thread] = place;
    place += here;
  }
  block_barrier();
  for (int64_t first = begin; first < end; first += kWarp) {
    const bool there = first + lane < end;
    const uint32_t source = there ? source_at(p.from, first + lane) : 0;
    const uint32_t digit = there ? digit_of(p, source) : 0;
    uint32_t same = warp_ballot(there);  // the lanes with this digit
    for (uint32_t bit = 1; bit < kDigits; bit *= 2) {
      const uint32_t set = warp_ballot((digit & bit) != 0);
      same &= digit & bit ? set : ~set;
    }
    const uint32_t before = bit_count(same & ((1u << lane) - 1));
    const uint32_t to = own[digit] + before;
    warp_barrier();
    if (there && before == 0) own[digit] += bit_count(same);
    warp_barrier();
    if (there) p.to[to] = source;
  }
}

// Where the sources of each destination begin and end; the host has set all to 0.
struct Bounds { uint32_t begin, end; };
struct Bound {
  Sort sort;  // `from` is the final order
  Bounds* bounds;
};
TS_KERNEL(scatter_bound, Bound, 256) {
  const Sort& sort = p.sort;
  for (int64_t j = first_item(); j < sort.count; j += item_step()) {
    const int64_t here = destination_of(sort, sort.from[j]);
    if (j == 0 || destination_of(sort, sort.from[j - 1]) != here)
      p.bounds[here].begin = static_cast<uint32_t>(j);
    if (j == sort.count - 1 || destination_of(sort, sort.from[j + 1]) != here)
      p.bounds[here].end = static_cast<uint32_t>(j + 1);
  }
}

// ---- the sums -----------------------------------------------------------------------------------

// out and x are [outer, size, inner], source is [outer, count, inner].
struct Sum {
  const float* x;  // null: destinations begin with +0
  const float* source;
  float* out;
  const uint32_t* order;
  const Bounds* bounds;
  int64_t outer, size, inner, count;
  int64_t skip;  // a destination that takes nothing; negative: there is none
  Refusal refusal;
};

template <int Count>
struct alignas(4 * Count) Floats { float of[Count]; };

constexpr int kSourcesAtOnce = 4;  // loads that a thread has under way

template <class Number, int Count>
TS_INLINE void scatter_sum_by(const Sum& p) {
  using Row = Floats<Count>;
  const Row *x = reinterpret_cast<const Row*>(p.x), *all = reinterpret_cast<const Row*>(p.source);
  const int64_t inner = p.inner / Count, total = p.outer * p.size * inner;
  for (int64_t i = first_item(); i < total; i += item_step()) {
    const Number item = static_cast<Number>(i), rest = item / static_cast<Number>(inner);
    const int64_t column = static_cast<int64_t>(item - rest * static_cast<Number>(inner));
    const int64_t outer = static_cast<int64_t>(rest / static_cast<Number>(p.size));
    const int64_t to = static_cast<int64_t>(rest) - outer * p.size;
    Row sum = {};
    if (x) sum = x[i];
    const Bounds bounds = p.bounds[to];
    const uint32_t end = to == p.skip ? bounds.begin : bounds.end;
    const Row* source = all + outer * p.count * inner + column;
    uint32_t j = bounds.begin;
    for (; j + kSourcesAtOnce <= end; j += kSourcesAtOnce) {
      Row held[kSourcesAtOnce];
      TS_UNROLL
      for (int k = 0; k < kSourcesAtOnce; ++k)
        held[k] = source[static_cast<int64_t>(p.order[j + k]) * inner];
      TS_UNROLL
      for (int k = 0; k < kSourcesAtOnce; ++k)
        for (int c = 0; c < Count; ++c) sum.of[c] = sum.of[c] + held[k].of[c];
    }
    for (; j < end; ++j) {
      const Row held = source[static_cast<int64_t>(p.order[j]) * inner];
      for (int c = 0; c < Count; ++c) sum.of[c] = sum.of[c] + held.of[c];
    }
    if (has_fault(Fault::one_bit)) sum.of[0] = bits_float(float_bits(sum.of[0]) ^ 1);
    Row result;
    for (int c = 0; c < Count; ++c) put1(result.of + c, sum.of[c]);
    reinterpret_cast<Row*>(p.out)[i] = result;
  }
}

template <int Count>
TS_INLINE void scatter_sum(const Sum& p) {
  if (refused(p.refusal)) return;
  if (p.outer * p.size * p.inner <= 0xffffffffll)
    scatter_sum_by<uint32_t, Count>(p);
  else
    scatter_sum_by<uint64_t, Count>(p);
}

TS_KERNEL(scatter_sum_1, Sum, 256) { scatter_sum<1>(p); }
TS_KERNEL(scatter_sum_4, Sum, 256) { scatter_sum<4>(p); }

}  // namespace tallystick::TS_ISA
