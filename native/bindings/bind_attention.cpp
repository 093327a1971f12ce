// Python's door to attention (NUMERICS 18): whole tensors, and pages of keys and values.
#include <algorithm>
#include <memory>
#include <new>
#include <numeric>
#include <vector>

#include "arrays.hpp"
#include "families/attention.hpp"
#include "families/gemm.hpp"

namespace tallystick {
namespace {

using namespace arrays;
template <size_t D>
using InC = nb::ndarray<const float, nb::ndim<D>, nb::c_contig, nb::device::cpu>;
template <size_t D>
using OutC = nb::ndarray<float, nb::ndim<D>, nb::c_contig, nb::device::cpu>;
using Whole = nb::ndarray<const int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using MaybeHeads = std::optional<InC<1>>;

constexpr int64_t kMaxPlace = (int64_t(1) << 31) - 1;
constexpr size_t kSerialWork = 50000;  // multiply-adds that are not worth another thread

// At least so many tasks of `work` multiply-adds to a thread.
size_t grain_of(size_t work) { return std::max<size_t>(1, kSerialWork / std::max<size_t>(1, work)); }

// 18.2: every query sees a key.
AttentionSeen seen_of(bool causal, int64_t first, int64_t window, size_t queries, size_t keys) {
  require(0 <= first && first <= kMaxPlace && 0 <= window && window <= kMaxPlace &&
              (causal || window == 0) && keys >= 1 && keys < size_t(kMaxPlace) &&
              queries < size_t(kMaxPlace) &&
              (window == 0 || first + static_cast<int64_t>(queries) - window <
                                  static_cast<int64_t>(keys)),
          "attention: a query sees no key");
  return {causal, first, window, queries, keys};
}

void check_groups(size_t heads, size_t groups) {
  require(groups >= 1 && heads % groups == 0, "attention: groups do not divide the heads");
}

const float* of_heads(const MaybeHeads& a, size_t heads) {
  require(!a || a->shape(0) == heads, "attention: slopes or sinks do not fit the heads");
  return a ? a->data() : nullptr;
}

// A cap of 0 caps nothing; it is compared as binary64 (NUMERICS 1.9).
ScoreRule rule_of(double scale, double softcap, const MaybeHeads& slopes, size_t heads) {
  return {static_cast<float>(scale), softcap != 0.0, static_cast<float>(softcap),
          of_heads(slopes, heads)};
}

void attention_scores(InC<4> q, InC<4> k, MaybeHeads slopes, OutC<4> out, double scale,
                      double softcap, bool causal, int64_t first, int64_t window) {
  const size_t batches = q.shape(0), heads = q.shape(1), queries = q.shape(2), depth = q.shape(3);
  const size_t groups = k.shape(1), keys = k.shape(2);
  require(k.shape(0) == batches && k.shape(3) == depth && out.shape(0) == batches &&
              out.shape(1) == heads && out.shape(2) == queries && out.shape(3) == keys,
          "attention_scores: shapes of q, k and out do not fit");
  check_groups(heads, groups);
  require_disjoint({out}, {q, k, slopes});
  const AttentionScores p = {seen_of(causal, first, window, queries, keys),
                             rule_of(scale, softcap, slopes, heads), heads, out.data()};
  // All heads of a group, and all their queries, are the rows of one product.
  GemmProblem product = {};
  product.m = heads / groups * queries;
  product.n = keys;
  product.k = depth;
  product.a.data = q.data();
  product.b.data = k.data();
  product.a.s_x = product.b.s_x = static_cast<ptrdiff_t>(depth);
  product.a.s_k = product.b.s_k = 1;
  product.out = out.data();
  product.ldc = static_cast<ptrdiff_t>(keys);
  nb::gil_scoped_release unlocked;
  if (!TS_DISPATCH(gemm).bmm(product, batches * groups, static_cast<ptrdiff_t>(product.m * depth),
                             static_cast<ptrdiff_t>(keys * depth),
                             static_cast<ptrdiff_t>(product.m * keys)))
    throw std::bad_alloc();
  const auto fn = TS_DISPATCH(attention).scores;
  parallel_ranges(batches * heads * queries, grain_of(16 * keys),
                  [&](size_t b, size_t e) { fn(p, b, e); });
}

void attention_weights(InC<4> s, MaybeHeads sinks, OutC<4> out, bool causal, int64_t first,
                       int64_t window) {
  const size_t heads = s.shape(1), queries = s.shape(2), keys = s.shape(3);
  require(out.shape(0) == s.shape(0) && out.shape(1) == heads && out.shape(2) == queries &&
              out.shape(3) == keys,
          "attention_weights: the output does not fit");
  require_same_or_apart(out, {s});
  require_disjoint({out}, {sinks});
  const AttentionWeights p = {seen_of(causal, first, window, queries, keys), heads, s.data(),
                              of_heads(sinks, heads), out.data()};
  const auto& table = TS_DISPATCH(attention);
  const size_t room = table.weights_scratch(keys);
  unlocked_ranges(s.shape(0) * heads * queries, grain_of(16 * keys), [&](size_t b, size_t e) {
    std::vector<float> scratch(room);
    table.weights(p, b, e, scratch.data());
  });
}

void attention_values(InC<4> w, InC<4> v, OutC<4> out, bool causal, int64_t first, int64_t window) {
  const size_t batches = w.shape(0), heads = w.shape(1), queries = w.shape(2), keys = w.shape(3);
  const size_t groups = v.shape(1), width = v.shape(3);
  require(v.shape(0) == batches && v.shape(2) == keys && out.shape(0) == batches &&
              out.shape(1) == heads && out.shape(2) == queries && out.shape(3) == width,
          "attention_values: shapes of p, v and out do not fit");
  check_groups(heads, groups);
  require_disjoint({out}, {w, v});
  const AttentionValues p = {seen_of(causal, first, window, queries, keys),
                             heads, groups, width, w.data(), v.data(), out.data()};
  const auto fn = TS_DISPATCH(attention).values;
  unlocked_ranges(batches * groups * queries, grain_of(heads / groups * keys * width),
                  [&](size_t b, size_t e) { fn(p, b, e); });
}

// --- pages ---------------------------------------------------------------------------------------
// Checks that every page from the one of key `low` to that of the row's place is there.
void check_row(int64_t start, int64_t place, int64_t low, const Whole& tables, size_t pages) {
  constexpr int64_t kKeys = kPageKeys;
  require(0 <= place && place <= kMaxPlace, "attention: a place is out of range");
  const int64_t count = static_cast<int64_t>(tables.shape(0));
  require(0 <= start && start <= count && place / kKeys < count - start,
          "attention: a table is shorter than its row's place");
  for (int64_t i = low / kKeys; i <= place / kKeys; ++i)
    require(static_cast<uint64_t>(tables.data()[start + i]) < pages,
            "attention: a table names no page");
}

// `longest`: the most rows that follow each other; `most`: the keys of the row that sees the most;
// `all`: those of all rows.
void compute_pages(const AttentionPages& p, size_t longest, size_t most, size_t all) {
  const auto& table = TS_DISPATCH(attention);
  const size_t tiles = (p.heads / p.groups + kHeadTile - 1) / kHeadTile;
  const size_t tasks = p.rows * p.groups * tiles;
  const size_t work = all * p.heads * (p.depth + p.width) / std::max<size_t>(1, tasks);
  const size_t room = table.pages_scratch(std::min(longest, kBlockQueries), most);
  unlocked_ranges(tasks, grain_of(work), [&](size_t b, size_t e) {
    const std::unique_ptr<float[]> scratch(new float[room]);
    table.pages(p, b, e, scratch.get());
  });
}

void attention_pages(InC<3> q, InC<2> pool, Whole tables, Whole starts, Whole places, size_t groups,
                     OutC<3> out, double scale, double softcap, int64_t window, MaybeHeads slopes,
                     MaybeHeads sinks) {
  const size_t rows = q.shape(0), heads = q.shape(1), depth = q.shape(2), width = out.shape(2);
  require(out.shape(0) == rows && out.shape(1) == heads && starts.shape(0) == rows &&
              places.shape(0) == rows,
          "attention_pages: shapes of q, starts, places and out do not fit");
  check_groups(heads, groups);
  require(pool.shape(1) == groups * kPageKeys * (depth + width),
          "attention_pages: a page of the pool does not fit q and out");
  require(0 <= window && window <= kMaxPlace, "attention_pages: the window is out of range");
  require_disjoint({out}, {q, pool, tables, starts, places, slopes, sinks});
  size_t most = 0, all = 0, run = 0, longest = 0;
  for (size_t r = 0; r < rows; ++r) {
    const int64_t place = places.data()[r];
    const bool follows = r > 0 && starts.data()[r] == starts.data()[r - 1] &&
                         place == places.data()[r - 1] + 1;
    run = follows ? run + 1 : 1;
    longest = std::max(longest, run);
    const int64_t low = window != 0 && place >= window ? place - window + 1 : 0;
    check_row(starts.data()[r], place, low, tables, pool.shape(0));
    most = std::max(most, static_cast<size_t>(place) + 1);
    all += static_cast<size_t>(place - low) + 1;
  }
  const size_t all_keys = static_cast<size_t>(kMaxPlace) + 1;
  compute_pages({rows, heads, groups, depth, width, {q.data(), heads * depth, depth}, pool.data(),
                 pool.shape(1), tables.data(), starts.data(), places.data(), true, window, all_keys,
                 rule_of(scale, softcap, slopes, heads), of_heads(sinks, heads),
                 {out.data(), heads * width, width}},
                longest, most, all);
}

// Writes the keys and values of one row, of the depth and width of `pool`, as number `at` of a page.
void write_page(float* page, size_t groups, size_t depth, size_t width, size_t at, const float* k,
                size_t k_step, const float* v, size_t v_step) {
  float* values = page + groups * depth * kPageKeys;
  for (size_t g = 0; g < groups; ++g, k += k_step, v += v_step) {
    for (size_t d = 0; d < depth; ++d) page[(g * depth + d) * kPageKeys + at] = k[d];
    std::copy(v, v + width, values + (g * kPageKeys + at) * width);
  }
}

void attention_append(InC<3> k, InC<3> v, OutC<2> pool, Whole tables, Whole starts, Whole places) {
  const size_t rows = k.shape(0), groups = k.shape(1), depth = k.shape(2), width = v.shape(2);
  require(v.shape(0) == rows && v.shape(1) == groups && starts.shape(0) == rows &&
              places.shape(0) == rows,
          "attention_append: shapes of k, v, starts and places do not fit");
  require(pool.shape(1) == groups * kPageKeys * (depth + width),
          "attention_append: a page of the pool does not fit k and v");
  require_disjoint({pool}, {k, v, tables, starts, places});
  for (size_t r = 0; r < rows; ++r)
    check_row(starts.data()[r], places.data()[r], places.data()[r], tables, pool.shape(0));
  nb::gil_scoped_release unlocked;
  for (size_t r = 0; r < rows; ++r) {
    const size_t place = static_cast<size_t>(places.data()[r]), at = place % kPageKeys;
    const int64_t page = tables.data()[static_cast<size_t>(starts.data()[r]) + place / kPageKeys];
    write_page(pool.data() + static_cast<size_t>(page) * pool.shape(1), groups, depth, width, at,
               k.data() + r * groups * depth, depth, v.data() + r * groups * width, width);
  }
}

// The three operators at once. Of each text of the batch, keys and values go to pages of its own
// that are one after the other, so memory grows with the number of keys and not with all pairs.
void attention(InC<4> q, InC<4> k, InC<4> v, MaybeHeads slopes, MaybeHeads sinks, OutC<4> out,
               double scale, double softcap, bool causal, int64_t first, int64_t window) {
  const size_t batches = q.shape(0), heads = q.shape(1), queries = q.shape(2), depth = q.shape(3);
  const size_t groups = k.shape(1), keys = k.shape(2), width = v.shape(3);
  require(k.shape(0) == batches && k.shape(3) == depth && v.shape(0) == batches &&
              v.shape(1) == groups && v.shape(2) == keys && out.shape(0) == batches &&
              out.shape(1) == heads && out.shape(2) == queries && out.shape(3) == width,
          "attention: shapes of q, k, v and out do not fit");
  check_groups(heads, groups);
  require_disjoint({out}, {q, k, v, slopes, sinks});
  (void)seen_of(causal, first, window, queries, keys);
  const ScoreRule rule = rule_of(scale, softcap, slopes, heads);
  const size_t floats = groups * kPageKeys * (depth + width), pages = (keys - 1) / kPageKeys + 1;
  std::vector<float> pool(pages * floats);
  std::vector<int64_t> tables(pages), starts(queries), places(queries);
  std::iota(tables.begin(), tables.end(), int64_t(0));
  std::iota(places.begin(), places.end(), first);
  for (size_t b = 0; b < batches; ++b) {
    const float *key = k.data() + b * groups * keys * depth, *value = v.data() + b * groups * keys * width;
    unlocked_ranges(pages, grain_of(floats), [&](size_t from, size_t to) {
      for (size_t j = from * kPageKeys; j < std::min(to * kPageKeys, keys); ++j)
        write_page(pool.data() + j / kPageKeys * floats, groups, depth, width, j % kPageKeys,
                   key + j * depth, keys * depth, value + j * width, keys * width);
    });
    const size_t at = b * heads * queries;
    compute_pages({queries, heads, groups, depth, width, {q.data() + at * depth, depth, queries * depth},
                   pool.data(), floats, tables.data(), starts.data(), places.data(), causal, window,
                   keys, rule, of_heads(sinks, heads),
                   {out.data() + at * width, width, queries * width}},
                  queries, keys, queries * keys);
  }
}

}  // namespace
}  // namespace tallystick

void bind_attention(nb::module_& m) {
  using namespace tallystick;
  const auto causal = "causal"_a, first = "first"_a, window = "window"_a, scale = "scale"_a,
             softcap = "softcap"_a;
  const auto out = as_is("out"), pool = as_is("pool"), tables = as_is("tables"),
             starts = as_is("starts"), places = as_is("places");
  const auto slopes = as_is("slopes").none(), sinks = as_is("sinks").none();
  define(m, "attention_scores", &attention_scores, as_is("q"), as_is("k"), slopes, out, scale,
         softcap, causal, first, window,
         "out[B,H,T,S] of q[B,H,T,D] and k[B,G,S,D], slopes[H] or None (NUMERICS 18.3).");
  define(m, "attention_weights", &attention_weights, as_is("s"), sinks, out, causal, first, window,
         "out[B,H,T,S], which may be s, of s[B,H,T,S], sinks[H] or None (NUMERICS 18.4).");
  define(m, "attention_values", &attention_values, as_is("p"), as_is("v"), out, causal, first,
         window, "out[B,H,T,E] of p[B,H,T,S] and v[B,G,S,E] (NUMERICS 18.5).");
  define(m, "attention", &attention, as_is("q"), as_is("k"), as_is("v"), slopes, sinks, out, scale,
         softcap, causal, first, window,
         "out[B,H,T,E] of q[B,H,T,D], k[B,G,S,D], v[B,G,S,E], slopes[H] and sinks[H] or None: the "
         "three operators at once, with the same attributes, in memory that does not grow with T*S "
         "(NUMERICS 18.3 to 18.5).");
  define(m, "attention_pages", &attention_pages, as_is("q"), pool, tables, starts, places,
         "groups"_a, out, scale, softcap, window, slopes, sinks,
         "out[rows,H,E] of q[rows,H,D]: the three operators for one query a row, causal, first = its "
         "place, over pages. pool is f32[pages, G*16*(D+E)]: of a page the keys [G,D,16], then the "
         "values [G,16,E]. Key j of row r is number j % 16 of page tables[starts[r] + j // 16]. "
         "tables, starts[rows] and places[rows] are i64. Pages below the window are not looked at.");
  define(m, "attention_append", &attention_append, as_is("k"), as_is("v"), pool, tables, starts,
         places,
         "Writes k[rows,G,D] and v[rows,G,E] as the keys and values number places[r] of the rows' "
         "pages (attention_pages).");
}
