// The place of each element in its row's order (NUMERICS 3.9): a merge sort of entries, no two of
// which are equal, since an entry holds its element's index after its key.
#include "device.hpp"

namespace tallystick::TS_ISA {

// Unsigned numbers in the order of the elements: one zero, and one NaN above all.
TS_INLINE uint32_t key_of(float x) {
  const uint32_t bits = float_bits(x), size = bits & 0x7fffffffu;
  if (size > 0x7f800000u) return 0xffffffffu;
  return bits == size ? 0x80000000u + size : 0x80000000u - size;
}
TS_INLINE uint64_t key_of(int64_t x) { return static_cast<uint64_t>(x) ^ (1ull << 63); }

// For rows of fewer than 2^32 elements with keys of 32 bits.
struct Narrow {
  uint64_t word;
  TS_INLINE static Narrow of(uint32_t key, bool descending, int64_t index) {
    return {static_cast<uint64_t>(descending ? ~key : key) << 32 | static_cast<uint64_t>(index)};
  }
  TS_INLINE bool before(const Narrow& b) const { return word < b.word; }
  TS_INLINE int64_t index() const { return static_cast<int64_t>(word & 0xffffffffull); }
};
struct Broad {
  uint64_t key;
  int64_t at;
  TS_INLINE static Broad of(uint64_t key, bool descending, int64_t index) {
    return {descending ? ~key : key, index};
  }
  TS_INLINE bool before(const Broad& b) const {
    return key < b.key || (key == b.key && at < b.at);
  }
  TS_INLINE int64_t index() const { return at; }
};

// Where entry i of `sorted` goes when the runs of `width` entries, of `count` in all, are merged two
// by two: its own place, and the entries of the other run that come before it.
template <class Entry>
TS_INLINE int64_t merged_place(const Entry* sorted, int64_t count, int64_t width, int64_t i) {
  const int64_t pair = i / (2 * width) * (2 * width), half = pair + width;
  const bool is_left = i < half;
  int64_t low = is_left ? ts_min(half, count) : pair;
  int64_t high = is_left ? ts_min(half + width, count) : half;
  const Entry own = sorted[i];
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    if (sorted[middle].before(own)) low = middle + 1;
    else high = middle;
  }
  return is_left ? i + (low - ts_min(half, count)) : (i - width) + (low - pair);
}

struct RankChunks {
  const void* x;
  void* sorted;     // entries, row by row; unused where a row is one chunk
  int64_t* places;  // the result
  int64_t rows, n, inner, chunks, descending;
};
struct RankMerge {
  const void* sorted;
  void* merged;  // null in the last pass, which writes places
  int64_t* places;
  int64_t rows, n, inner, width;
};

// The place in memory of element i of row r, rows lying side by side.
TS_INLINE int64_t element_at(int64_t r, int64_t i, int64_t n, int64_t inner) {
  const int64_t outer = r / inner;
  return (outer * n + i) * inner + (r - outer * inner);
}

// A block sorts as many entries as it has threads, a power of two.
constexpr int64_t kMostChunk = 1024;
template <class Entry, class T>
TS_INLINE void sort_chunks(const RankChunks& p, Entry* from, Entry* to) {
  const int64_t chunk = thread_count(), own = thread_index();
  for (int64_t item = block_x(); item < p.rows * p.chunks; item += grid_x()) {
    const int64_t r = item / p.chunks, first = (item - r * p.chunks) * chunk;
    const int64_t count = ts_min(chunk, p.n - first);
    block_barrier();  // the entries of the item before may still be read
    if (own < count) {
      const T x = static_cast<const T*>(p.x)[element_at(r, first + own, p.n, p.inner)];
      from[own] = Entry::of(key_of(x), p.descending != 0, first + own);
    }
    block_barrier();
    for (int64_t width = 1; width < count; width *= 2) {
      if (own < count) to[merged_place(from, count, width, own)] = from[own];
      block_barrier();
      Entry* sorted = to;
      to = from;
      from = sorted;
    }
    if (own >= count) continue;
    if (p.chunks > 1) static_cast<Entry*>(p.sorted)[r * p.n + first + own] = from[own];
    else p.places[element_at(r, from[own].index(), p.n, p.inner)] = own;
  }
}

template <class Entry>
TS_INLINE void merge_runs(const RankMerge& p) {
  for (int64_t item = first_item(); item < p.rows * p.n; item += item_step()) {
    const int64_t r = item / p.n, i = item - r * p.n;
    const Entry* sorted = static_cast<const Entry*>(p.sorted) + r * p.n;
    const int64_t place = merged_place(sorted, p.n, p.width, i);
    if (p.merged) static_cast<Entry*>(p.merged)[r * p.n + place] = sorted[i];
    else p.places[element_at(r, sorted[i].index(), p.n, p.inner)] = place;
  }
}

#define TS_RANK(name, Entry, T)                        \
  TS_KERNEL(rank_chunks_##name, RankChunks, 1024) {    \
    TS_SHARED(Entry, room, 2 * kMostChunk);            \
    sort_chunks<Entry, T>(p, room, room + kMostChunk); \
  }
TS_RANK(narrow_f32, Narrow, float)
TS_RANK(broad_f32, Broad, float)
TS_RANK(broad_i64, Broad, int64_t)
TS_KERNEL(rank_merge_narrow, RankMerge, 256) { merge_runs<Narrow>(p); }
TS_KERNEL(rank_merge_broad, RankMerge, 256) { merge_runs<Broad>(p); }

}  // namespace tallystick::TS_ISA
