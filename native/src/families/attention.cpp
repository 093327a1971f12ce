// Attention, one copy per instruction set (NUMERICS 18). The same rows of scores, sums and tiles of
// values serve whole tensors and pages, so that their bits are one. Queries that follow each other
// in a text are computed in blocks: a register of keys or values is loaded once for several rows.
// Each row's terms keep their order.
#include "families/attention.hpp"

#include "families/gemm.hpp"
#include "tallystick/attention_elements.hpp"
#include "tallystick/gemm_vec.hpp"
#include "tallystick/nn_elements.hpp"
#include "tallystick/reduce.hpp"

namespace tallystick {
namespace TS_ISA {
namespace {

// The rows of a tile of results, and the registers of each row.
#if defined(TS_ISA_AVX512) || defined(TS_ISA_NEON)
constexpr int kTileRows = 6, kTileVectors = 4;
#elif defined(TS_ISA_AVX2)
constexpr int kTileRows = 6, kTileVectors = 2;
#else
constexpr int kTileRows = 3, kTileVectors = 4;
#endif

// Each tile is a function of its own: of all sizes in one, its loops would lack registers.
#define TS_TILE __attribute__((noinline))

// --- blocks --------------------------------------------------------------------------------------
// One head of one query. Rows of a block share a group's keys and values; of two that follow each
// other, the second begins and ends at or after the first.
struct Row {
  KeysSeen seen;
  const float *q, *w;  // w: the weight of key j at w[j]
  float *s, *out;      // s: its score at s[j]
};
struct Block {
  Row rows[kBlockQueries * kHeadTile];
  size_t count;
};

// A value that several terms read: gcc would load it again for each of a few.
TS_INLINE f32v held(f32v x) {
#if defined(TS_ISA_AVX512)
  asm("" : "+v"(x));
#elif defined(TS_ISA_AVX2)
  asm("" : "+x"(x));
#endif
  return x;
}

template <int N>
struct Count {
  static constexpr int value = N;
};

// tile(Count<N>, first) of all numbers from `first` to n - 1: N of them at a time, then fewer.
template <int N, class Tile>
TS_INLINE void in_tiles(size_t first, size_t n, const Tile& tile) {
  for (; first + N <= n; first += N) tile(Count<N>(), first);
  if constexpr (N > 1) in_tiles<N - 1>(first, n, tile);
}

template <int R, int V>
TS_INLINE void zero(f32v (&x)[R][V]) {
  TS_UNROLL for (int r = 0; r < R; ++r) {
    TS_UNROLL for (int v = 0; v < V; ++v) x[r][v] = v_zero();
  }
}

// --- scores (18.3) -------------------------------------------------------------------------------
// RN32 of the numbers of keys j, j + 1, ...
TS_INLINE f32v key_numbers(size_t j) {
  float at[kF32Lanes];
  for (size_t l = 0; l < kF32Lanes; ++l) at[l] = static_cast<float>(static_cast<int64_t>(j + l));
  return v_load(at);
}

// As map_out, without the fault of a fault build: the product has it, and two would cancel out.
template <class F>
TS_INLINE void map_canonical(size_t n, float* out, const F& f) {
  size_t i = 0;
  for (; i + kF32Lanes <= n; i += kF32Lanes) v_store(out + i, v_canon(f(i, kF32Lanes)));
  if (i < n) v_store_n(out + i, v_canon(f(i, n - i)), n - i);
}

// Products of keys lo to hi become scores; `slope` may be null.
void score_row(float* s, KeysSeen seen, const ScoreRule& rule, const float* slope) {
  const f32v scale = v_set1(rule.scale), cap = v_set1(rule.cap);
  float* x = s + seen.lo;
  const size_t n = seen.hi - seen.lo + 1, lo = seen.lo;
  if (slope == nullptr) {
    map_canonical(n, x, [=](size_t i, size_t k) TS_LAMBDA {
      return score_of(v_load_any(x + i, k), scale, rule.capped, cap);
    });
    return;
  }
  const f32v by = v_set1(*slope);
  map_canonical(n, x, [=](size_t i, size_t k) TS_LAMBDA {
    return sloped(score_of(v_load_any(x + i, k), scale, rule.capped, cap), by, key_numbers(lo + i));
  });
}

TS_INLINE void clear(float* x, size_t begin, size_t end) {
  for (size_t i = begin; i < end; ++i) x[i] = 0.0f;
}

TS_INLINE KeysSeen row_seen(const AttentionSeen& s, size_t query) {
  return keys_seen(s.causal, s.first + static_cast<int64_t>(query), s.window, s.keys);
}

void scores(const AttentionScores& p, size_t begin, size_t end) {
  for (size_t r = begin; r < end; ++r) {
    const size_t head = r / p.seen.queries % p.heads;
    const KeysSeen seen = row_seen(p.seen, r % p.seen.queries);
    float* s = p.scores + r * p.seen.keys;
    score_row(s, seen, p.rule, p.rule.slopes == nullptr ? nullptr : p.rule.slopes + head);
    clear(s, 0, seen.lo);
    clear(s, seen.hi + 1, p.seen.keys);
  }
}

// --- weights (18.4) ------------------------------------------------------------------------------
// Where the terms of a row begin in its room: a sink is term 0, so keys keep the sum's lanes.
TS_INLINE size_t terms_before(const float* sink) { return sink == nullptr ? 0 : 1; }

// e[before + j] = exp(s[j] - m) of keys lo to hi, and the sum of all terms. e may not be s. Room for
// hi + 2 terms.
float sum_weights(const float* s, KeysSeen seen, const float* sink, float* e) {
  const size_t before = terms_before(sink), n = seen.hi - seen.lo + 1;
  float top = max_row(s + seen.lo, n);
  if (sink != nullptr) top = max1(top, *sink);
  const f32v m = v_set1(top);
  const float *x = s + seen.lo;
  float* own = e + before + seen.lo;
  size_t i = 0;
  for (; i + kF32Lanes <= n; i += kF32Lanes) v_store(own + i, exp_below(v_load(x + i), m));
  if (i < n) v_store_n(own + i, exp_below(v_load_n(x + i, n - i), m), n - i);
  // What a window leaves out is +0: whole registers of it are not even read.
  const size_t zeros = (before + seen.lo) / kSumLanes * kSumLanes;
  clear(e, zeros, before + seen.lo);
  const float first = sink == nullptr ? 0.0f : v_lane0(exp_below(v_set1(*sink), m));
  if (sink != nullptr && zeros == 0) e[0] = first;
  return sum_of(before + seen.hi + 1, [=](size_t at, size_t k) TS_LAMBDA {
    if (at >= zeros) return v_load_any(e + at, k);
    return at == 0 && sink != nullptr ? v_blend(m_first(1), v_set1(first), v_zero()) : v_zero();
  });
}

void weights(const AttentionWeights& p, size_t begin, size_t end, float* scratch) {
  for (size_t r = begin; r < end; ++r) {
    const size_t head = r / p.seen.queries % p.heads;
    const KeysSeen seen = row_seen(p.seen, r % p.seen.queries);
    const float* sink = p.sinks == nullptr ? nullptr : p.sinks + head;
    float* out = p.out + r * p.seen.keys;
    const f32v total = v_set1(sum_weights(p.scores + r * p.seen.keys, seen, sink, scratch));
    const float* e = scratch + terms_before(sink) + seen.lo;
    map_out(seen.hi - seen.lo + 1, out + seen.lo, [=](size_t i, size_t k) TS_LAMBDA {
      return softmax_of(v_load_any(e + i, k), total);
    });
    clear(out, 0, seen.lo);
    clear(out, seen.hi + 1, p.seen.keys);
  }
}

size_t weights_scratch(size_t keys) { return keys + 2; }

// --- values (18.5) -------------------------------------------------------------------------------
// Where the values of one group lie: rows of `width` floats, so many of them together.
struct WholeRows {
  const float* values;
  size_t width;
  TS_INLINE const float* row(size_t j) const { return values + j * width; }
  TS_INLINE size_t together(size_t, size_t left) const { return left; }
};
struct PagedRows {
  const float* values;  // of the group in page 0
  size_t width, page_floats;
  const int64_t* table;
  TS_INLINE const float* row(size_t j) const {
    return values + static_cast<size_t>(table[j / kPageKeys]) * page_floats + j % kPageKeys * width;
  }
  TS_INLINE size_t together(size_t j, size_t left) const {
    return ts_min(left, kPageKeys - j % kPageKeys);
  }
};

// Adds the terms of keys j to end - 1 to V registers of R rows. With `edge`, some rows do not see
// some of these keys. `left`: columns of a last register that is not whole, else 0.
template <bool edge, int R, int V, class Rows>
TS_INLINE void values_terms(const Row* row, const Rows& rows, size_t j, size_t end, size_t e,
                            size_t left, f32v (&acc)[R][V]) {
  const float* w[R];
  TS_UNROLL for (int r = 0; r < R; ++r) w[r] = row[r].w;
  while (j < end) {
    const size_t n = rows.together(j, end - j);
    const float* x = rows.row(j) + e;
    for (const size_t stop = j + n; j < stop; ++j, x += rows.width) {
      f32v value[V];
      TS_UNROLL for (int v = 0; v < V; ++v) {
        value[v] = held(v == V - 1 && left != 0 ? v_load_n(x + v * kF32Lanes, left)
                                                : v_load(x + v * kF32Lanes));
      }
      TS_UNROLL for (int r = 0; r < R; ++r) {
        if (edge && (j < row[r].seen.lo || row[r].seen.hi < j)) continue;
        const f32v by = v_set1(w[r][j]);
        TS_UNROLL for (int v = 0; v < V; ++v) acc[r][v] = v_fma(by, value[v], acc[r][v]);
      }
    }
  }
}

// Chunk c of the DOT of R rows, at columns e to e + V registers: the terms of the keys that a row
// sees (2.1, 2.2). Results lie in `out` from chunk to chunk.
template <int R, int V, class Rows>
TS_TILE void values_tile(const Row* row, const Rows& rows, size_t c, size_t e, size_t left) {
  const KeysSeen first = row[0].seen, last = row[R - 1].seen;
  const size_t from = ts_max(c * kChunkTerms, first.lo);
  const size_t until = ts_min((c + 1) * kChunkTerms, last.hi + 1);
  if (from >= until) return;
  // All rows see keys `all` to `none` - 1.
  const size_t all = ts_min(ts_max(from, last.lo), until);
  const size_t none = ts_max(ts_min(until, first.hi + 1), all);
  f32v acc[R][V];
  zero(acc);
  values_terms<true>(row, rows, from, all, e, left, acc);
  values_terms<false>(row, rows, all, none, e, left, acc);
  values_terms<true>(row, rows, none, until, e, left, acc);
  TS_UNROLL for (int r = 0; r < R; ++r) {
    const size_t begins = row[r].seen.lo / kChunkTerms, ends = row[r].seen.hi / kChunkTerms;
    if (c < begins || ends < c) continue;
    TS_UNROLL for (int v = 0; v < V; ++v) {
      float* y = row[r].out + e + v * kF32Lanes;
      const size_t n = v == V - 1 && left != 0 ? left : kF32Lanes;
      // Chunk 0 initialises the total. Chunks below the first that a row sees are +0.
      f32v x = acc[r][v];
      if (c != 0) x = v_add(c == begins ? v_zero() : v_load_any(y, n), x);
      if (c == ends) x = v_canon(v_planted(x));
      if (n == kF32Lanes) v_store(y, x);
      else v_store_n(y, x, n);
    }
  }
}

template <class Rows>
void values_of(const Block& block, const Rows& rows) {
  const Row* row = block.rows;
  const size_t registers = ceil_div(rows.width, kF32Lanes), left = rows.width % kF32Lanes;
  const size_t last = row[block.count - 1].seen.hi / kChunkTerms;
  for (size_t c = row[0].seen.lo / kChunkTerms; c <= last; ++c) {
    in_tiles<kTileVectors>(0, registers, [&](auto across, size_t v) TS_LAMBDA {
      constexpr int V = decltype(across)::value;
      const size_t partial = v + V == registers ? left : 0;
      in_tiles<kTileRows>(0, block.count, [&](auto down, size_t r) TS_LAMBDA {
        values_tile<decltype(down)::value, V>(row + r, rows, c, v * kF32Lanes, partial);
      });
    });
  }
}

void values(const AttentionValues& p, size_t begin, size_t end) {
  const size_t queries = p.seen.queries, keys = p.seen.keys, of_group = p.heads / p.groups;
  while (begin < end) {
    const size_t shared = begin / queries, query = begin % queries;
    const size_t n = ts_min(kBlockQueries, ts_min(end - begin, queries - query));
    for (size_t h = 0; h < of_group; h += kHeadTile) {
      Block block;
      block.count = 0;
      for (size_t i = query; i < query + n; ++i) {
        for (size_t k = h; k < ts_min(h + kHeadTile, of_group); ++k) {
          // Heads of a group follow each other, and groups too: (batch, head) is this number.
          const size_t row = (shared * of_group + k) * queries + i;
          block.rows[block.count++] = {row_seen(p.seen, i), nullptr, p.weights + row * keys, nullptr,
                                       p.out + row * p.width};
        }
      }
      values_of(block, WholeRows{p.values + shared * keys * p.width, p.width});
    }
    begin += n;
  }
}

// --- pages ---------------------------------------------------------------------------------------
// Products of R rows with V registers of keys. keys[v]: those of register v at depth 0, the next
// depth kPageKeys floats on.
template <int R, int V>
TS_TILE void products_tile(const Row* row, const float* const* keys, size_t depth, size_t j) {
  const float *q[R], *key[V];
  TS_UNROLL for (int v = 0; v < V; ++v) key[v] = keys[v];
  TS_UNROLL for (int r = 0; r < R; ++r) q[r] = row[r].q;
  size_t d = 0;
  do {
    f32v acc[R][V];
    zero(acc);
    const size_t end = ts_min(d + kChunkTerms, depth);
    for (size_t k = d; k < end; ++k) {
      f32v x[V];
      TS_UNROLL for (int v = 0; v < V; ++v) x[v] = held(v_load(key[v] + k * kPageKeys));
      TS_UNROLL for (int r = 0; r < R; ++r) {
        const f32v by = v_set1(q[r][k]);
        TS_UNROLL for (int v = 0; v < V; ++v) acc[r][v] = v_fma(by, x[v], acc[r][v]);
      }
    }
    TS_UNROLL for (int r = 0; r < R; ++r) {
      TS_UNROLL for (int v = 0; v < V; ++v) {
        float* s = row[r].s + j + v * kF32Lanes;
        v_store(s, d == 0 ? acc[r][v] : v_add(v_load(s), acc[r][v]));
      }
    }
    d += kChunkTerms;
  } while (d < depth);
}

// The keys of one group in one text's pages.
struct PagedKeys {
  const float* keys;  // of the group in page 0
  size_t page_floats;
  const int64_t* table;
  TS_INLINE const float* at(size_t j) const {
    return keys + static_cast<size_t>(table[j / kPageKeys]) * page_floats + j % kPageKeys;
  }
};

// Products with whole registers of keys, from one at or below what a row sees to one at or above.
void products_of(const Block& block, const PagedKeys& keys, size_t depth) {
  const Row* row = block.rows;
  const size_t begin = row[0].seen.lo / kF32Lanes;
  const size_t end = row[block.count - 1].seen.hi / kF32Lanes + 1;
  in_tiles<kTileVectors>(begin, end, [&](auto across, size_t at) TS_LAMBDA {
    constexpr int V = decltype(across)::value;
    const size_t j = at * kF32Lanes, after = j + V * kF32Lanes;
    const float* key[V];
    for (int v = 0; v < V; ++v) key[v] = keys.at(j + v * kF32Lanes);
    in_tiles<kTileRows>(0, block.count, [&](auto down, size_t r) TS_LAMBDA {
      constexpr int R = decltype(down)::value;
      if (row[r].seen.lo < after && j <= row[r + R - 1].seen.hi)
        products_tile<R, V>(row + r, key, depth, j);
    });
  });
}

// Room of a row of products or terms.
TS_INLINE size_t row_room(size_t keys) { return ceil_div(keys + 2, size_t(16)) * 16 + 16; }
// 49 rows for whole blocks, on each thread: 196 bytes a key, so 6 MiB for 32,768 keys.
size_t pages_scratch(size_t queries, size_t keys) {
  return (queries * kHeadTile + 1) * row_room(keys);
}

template <class T>
TS_INLINE T* head_row(const HeadRows<T>& rows, size_t row, size_t head) {
  return rows.data + row * rows.row + head * rows.head;
}

// Whether row `next` of the pages can be in a block with the one before it.
bool follows(const AttentionPages& p, size_t next) {
  return p.starts[next] == p.starts[next - 1] && p.places[next] == p.places[next - 1] + 1;
}

void pages(const AttentionPages& p, size_t begin, size_t end, float* scratch) {
  const size_t of_group = p.heads / p.groups, tiles = ceil_div(of_group, kHeadTile);
  while (begin < end) {
    const size_t row = begin % p.rows, group = begin / p.rows / tiles;
    const size_t h0 = group * of_group + begin / p.rows % tiles * kHeadTile;
    const size_t heads = ts_min(kHeadTile, (group + 1) * of_group - h0);
    const size_t most = ts_min(kBlockQueries, ts_min(end - begin, p.rows - row));
    size_t n = 1;
    while (n < most && follows(p, row + n)) ++n;
    begin += n;
    const size_t room = row_room(keys_seen(p.causal, p.places[row + n - 1], p.window, p.keys).hi + 1);
    float* terms = scratch + n * heads * room;
    Block block;
    block.count = 0;
    for (size_t i = row; i < row + n; ++i) {
      const KeysSeen seen = keys_seen(p.causal, p.places[i], p.window, p.keys);
      for (size_t h = h0; h < h0 + heads; ++h) {
        float* s = scratch + block.count * room;  // its weights take the place of its scores
        block.rows[block.count++] = {seen, head_row(p.q, i, h), s, s, head_row(p.out, i, h)};
      }
    }
    const int64_t* table = p.tables + p.starts[row];
    products_of(block, {p.pool + group * p.depth * kPageKeys, p.page_floats, table}, p.depth);
    for (size_t i = 0; i < block.count; ++i) {
      const size_t head = h0 + i % heads;
      float* s = block.rows[i].s;
      const KeysSeen seen = block.rows[i].seen;
      const float* sink = p.sinks == nullptr ? nullptr : p.sinks + head;
      score_row(s, seen, p.rule, p.rule.slopes == nullptr ? nullptr : p.rule.slopes + head);
      const f32v total = v_set1(sum_weights(s, seen, sink, terms));
      const float* e = terms + terms_before(sink) + seen.lo;
      map_out(seen.hi - seen.lo + 1, s + seen.lo, [=](size_t k, size_t lanes) TS_LAMBDA {
        return softmax_of(v_load_any(e + k, lanes), total);
      });
    }
    const float* values = p.pool + p.groups * p.depth * kPageKeys + group * kPageKeys * p.width;
    values_of(block, PagedRows{values, p.width, p.page_floats, table});
  }
}

}  // namespace
}  // namespace TS_ISA

namespace isa = TS_ISA;
TS_DEFINE_TABLE(AttentionTable, attention) = {
    isa::scores, isa::weights, isa::weights_scratch, isa::values, isa::pages, isa::pages_scratch};

}  // namespace tallystick
