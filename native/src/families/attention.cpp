// Attention, one copy per instruction set (NUMERICS 18). The same rows of scores, sums and tiles of
// values serve whole tensors and pages, so that their bits are one.
#include "families/attention.hpp"

#include "families/gemm.hpp"
#include "tallystick/attention_elements.hpp"
#include "tallystick/gemm_vec.hpp"
#include "tallystick/nn_elements.hpp"
#include "tallystick/reduce.hpp"

namespace tallystick {
namespace TS_ISA {
namespace {

constexpr size_t kTileVectors = 4;  // registers of results that a head has in a tile

// --- chunks (2.1, 2.2) ---------------------------------------------------------------------------
template <int R, int V>
TS_INLINE void zero(f32v (&x)[R][V]) {
  TS_UNROLL for (int r = 0; r < R; ++r) {
    TS_UNROLL for (int v = 0; v < V; ++v) x[r][v] = v_zero();
  }
}

// The first chunk initialises the total.
template <int R, int V>
TS_INLINE void add_chunk(bool first, const f32v (&chunk)[R][V], f32v (&total)[R][V]) {
  TS_UNROLL for (int r = 0; r < R; ++r) {
    TS_UNROLL for (int v = 0; v < V; ++v)
      total[r][v] = first ? chunk[r][v] : v_add(total[r][v], chunk[r][v]);
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

// Columns e to e + V registers of R heads: DOT over keys 0 to hi, of which those below lo are
// +0·+0. `left`: columns of a last register that is not whole, else 0.
template <int R, int V, class Rows>
TS_INLINE void values_tile(const float* const* w, const Rows& rows, KeysSeen seen, size_t e,
                           size_t left, float* const* out) {
  f32v total[R][V];
  zero(total);
  // Chunks below that of lo are +0, and total begins with theirs.
  for (size_t c = seen.lo / kChunkTerms; c <= seen.hi / kChunkTerms; ++c) {
    f32v acc[R][V];
    zero(acc);
    const size_t end = ts_min((c + 1) * kChunkTerms, seen.hi + 1);
    for (size_t j = ts_max(c * kChunkTerms, seen.lo); j < end;) {
      const size_t n = rows.together(j, end - j);
      const float* x = rows.row(j) + e;
      for (size_t i = 0; i < n; ++i, x += rows.width) {
        f32v value[V];
        TS_UNROLL for (int v = 0; v < V; ++v) {
          value[v] = v == V - 1 && left != 0 ? v_load_n(x + v * kF32Lanes, left)
                                             : v_load(x + v * kF32Lanes);
        }
        TS_UNROLL for (int r = 0; r < R; ++r) {
          const f32v by = v_set1(w[r][j + i]);
          TS_UNROLL for (int v = 0; v < V; ++v) acc[r][v] = v_fma(by, value[v], acc[r][v]);
        }
      }
      j += n;
    }
    add_chunk(c == 0, acc, total);
  }
  TS_UNROLL for (int r = 0; r < R; ++r) {
    TS_UNROLL for (int v = 0; v < V; ++v) {
      float* y = out[r] + e + v * kF32Lanes;
      if (v == V - 1 && left != 0) v_put_n(y, total[r][v], left);
      else v_put(y, total[r][v]);
    }
  }
}

template <int R, class Rows>
void values_of_heads(const float* const* w, const Rows& rows, KeysSeen seen, float* const* out) {
  constexpr size_t kWide = kTileVectors * kF32Lanes;
  const size_t width = rows.width, left = width % kF32Lanes;
  size_t e = 0;
  for (; e + kWide <= width; e += kWide) values_tile<R, kTileVectors>(w, rows, seen, e, 0, out);
  switch (ceil_div(width - e, kF32Lanes)) {
    case 1: return values_tile<R, 1>(w, rows, seen, e, left, out);
    case 2: return values_tile<R, 2>(w, rows, seen, e, left, out);
    case 3: return values_tile<R, 3>(w, rows, seen, e, left, out);
    case 4: return values_tile<R, 4>(w, rows, seen, e, left, out);
    default: return;
  }
}

template <class Rows>
void values_of(size_t heads, const float* const* w, const Rows& rows, KeysSeen seen,
               float* const* out) {
  static_assert(kHeadTile == 3, "one case for each number of heads");
  if (heads == 3) values_of_heads<3>(w, rows, seen, out);
  else if (heads == 2) values_of_heads<2>(w, rows, seen, out);
  else values_of_heads<1>(w, rows, seen, out);
}

void values(const AttentionValues& p, size_t begin, size_t end) {
  const size_t queries = p.seen.queries, keys = p.seen.keys, of_group = p.heads / p.groups;
  for (size_t t = begin; t < end; ++t) {
    const size_t shared = t / queries, query = t % queries;
    const KeysSeen seen = row_seen(p.seen, query);
    const WholeRows rows = {p.values + shared * keys * p.width, p.width};
    for (size_t h = 0; h < of_group; h += kHeadTile) {
      const float* w[kHeadTile];
      float* out[kHeadTile];
      const size_t n = ts_min(kHeadTile, of_group - h);
      for (size_t i = 0; i < n; ++i) {
        // Heads of a group follow each other, and groups too: (batch, head) is this number.
        const size_t row = (shared * of_group + h + i) * queries + query;
        w[i] = p.weights + row * keys;
        out[i] = p.out + row * p.width;
      }
      values_of(n, w, rows, seen, out);
    }
  }
}

// --- pages ---------------------------------------------------------------------------------------
// Products of R heads with V registers of keys. key[v]: those of register v at depth 0, the next
// depth kPageKeys floats on.
template <int R, int V>
TS_INLINE void products_tile(const float* const* q, const float* const* key, size_t depth, size_t j,
                             float* const* s) {
  f32v total[R][V];
  zero(total);
  for (size_t d = 0; d < depth; d += kChunkTerms) {
    f32v acc[R][V];
    zero(acc);
    const size_t end = ts_min(d + kChunkTerms, depth);
    for (size_t k = d; k < end; ++k) {
      f32v x[V];
      TS_UNROLL for (int v = 0; v < V; ++v) x[v] = v_load(key[v] + k * kPageKeys);
      TS_UNROLL for (int r = 0; r < R; ++r) {
        const f32v by = v_set1(q[r][k]);
        TS_UNROLL for (int v = 0; v < V; ++v) acc[r][v] = v_fma(by, x[v], acc[r][v]);
      }
    }
    add_chunk(d == 0, acc, total);
  }
  TS_UNROLL for (int r = 0; r < R; ++r) {
    TS_UNROLL for (int v = 0; v < V; ++v) v_store(s[r] + j + v * kF32Lanes, total[r][v]);
  }
}

// The keys of one group in one row's pages.
struct PagedKeys {
  const float* keys;  // of the group in page 0
  size_t page_floats;
  const int64_t* table;
  TS_INLINE const float* at(size_t j) const {
    return keys + static_cast<size_t>(table[j / kPageKeys]) * page_floats + j % kPageKeys;
  }
};

// Products with whole registers of keys from one at or below lo to one at or above hi.
template <int R>
void products_of_heads(const float* const* q, const PagedKeys& keys, size_t depth, KeysSeen seen,
                       float* const* s) {
  size_t j = seen.lo / kF32Lanes * kF32Lanes;
  const size_t end = ceil_div(seen.hi + 1, kF32Lanes) * kF32Lanes;
  const float* at[kTileVectors];
  for (; j + kTileVectors * kF32Lanes <= end; j += kTileVectors * kF32Lanes) {
    for (size_t v = 0; v < kTileVectors; ++v) at[v] = keys.at(j + v * kF32Lanes);
    products_tile<R, kTileVectors>(q, at, depth, j, s);
  }
  for (; j < end; j += kF32Lanes) {
    at[0] = keys.at(j);
    products_tile<R, 1>(q, at, depth, j, s);
  }
}

void products_of(size_t heads, const float* const* q, const PagedKeys& keys, size_t depth,
                 KeysSeen seen, float* const* s) {
  if (heads == 3) products_of_heads<3>(q, keys, depth, seen, s);
  else if (heads == 2) products_of_heads<2>(q, keys, depth, seen, s);
  else products_of_heads<1>(q, keys, depth, seen, s);
}

// Room of one head: a row of products, and a row of terms.
TS_INLINE size_t row_room(size_t keys) { return ceil_div(keys + 2, size_t(16)) * 16 + 16; }
size_t pages_scratch(size_t keys) { return kHeadTile * 2 * row_room(keys); }

void pages(const AttentionPages& p, size_t begin, size_t end, float* scratch) {
  const size_t of_group = p.heads / p.groups, tiles = ceil_div(of_group, kHeadTile);
  for (size_t t = begin; t < end; ++t) {
    const size_t row = t / (p.groups * tiles), group = t / tiles % p.groups;
    const size_t h0 = group * of_group + t % tiles * kHeadTile;
    const size_t n = ts_min(kHeadTile, (group + 1) * of_group - h0);
    const int64_t place = p.places[row];
    const KeysSeen seen = keys_seen(true, place, p.window, static_cast<size_t>(place) + 1);
    const int64_t* table = p.tables + p.starts[row];
    const size_t room = row_room(seen.hi + 1);
    const float *q[kHeadTile], *w[kHeadTile];
    float *s[kHeadTile], *out[kHeadTile];
    for (size_t i = 0; i < n; ++i) {
      q[i] = p.q + (row * p.heads + h0 + i) * p.depth;
      s[i] = scratch + 2 * i * room;
      out[i] = p.out + (row * p.heads + h0 + i) * p.width;
    }
    const float* keys = p.pool + group * p.depth * kPageKeys;
    products_of(n, q, {keys, p.page_floats, table}, p.depth, seen, s);
    for (size_t i = 0; i < n; ++i) {
      const size_t head = h0 + i;
      const float* sink = p.sinks == nullptr ? nullptr : p.sinks + head;
      float* e = s[i] + room;
      score_row(s[i], seen, p.rule, p.rule.slopes == nullptr ? nullptr : p.rule.slopes + head);
      const f32v total = v_set1(sum_weights(s[i], seen, sink, e));
      e += terms_before(sink);
      w[i] = e;
      map_out(seen.hi - seen.lo + 1, e + seen.lo, [=](size_t k, size_t lanes) TS_LAMBDA {
        return softmax_of(v_load_any(e + seen.lo + k, lanes), total);
      });
    }
    const float* values = p.pool + p.groups * p.depth * kPageKeys + group * kPageKeys * p.width;
    values_of(n, w, PagedRows{values, p.width, p.page_floats, table}, seen, out);
  }
}

}  // namespace
}  // namespace TS_ISA

namespace isa = TS_ISA;
TS_DEFINE_TABLE(AttentionTable, attention) = {
    isa::scores, isa::weights, isa::weights_scratch, isa::values, isa::pages, isa::pages_scratch};

}  // namespace tallystick
