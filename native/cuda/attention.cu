// Attention over whole tensors (NUMERICS 18). A thread makes a score, and an element of the values; a
// team makes a row of weights.
#include "sums.hpp"

#include "tallystick/attention_elements.hpp"
#include "tallystick/nn_elements.hpp"

namespace tallystick::TS_ISA {

constexpr int64_t kTerms = 128;  // of a chunk (2.1)

struct AttentionSeen {
  int64_t causal, first, window, queries, keys;
};
struct Ends {
  int64_t lo, hi;
};
TS_INLINE Ends ends_of(const AttentionSeen& s, int64_t query) {
  const KeysSeen seen =
      keys_seen(s.causal != 0, s.first + query, s.window, static_cast<size_t>(s.keys));
  return {static_cast<int64_t>(seen.lo), static_cast<int64_t>(seen.hi)};
}

// DOT of the terms first to last - 1: those before them are +0 (2.1, 2.2, 18.5).
template <class A, class B>
TS_INLINE float chunked_dot(int64_t first, int64_t last, const A& a, const B& b) {
  float total = 0.0f;
  for (int64_t c = first / kTerms; c * kTerms < last; ++c) {
    float chunk = 0.0f;
    const int64_t end = ts_min((c + 1) * kTerms, last);
    for (int64_t i = ts_max(c * kTerms, first); i < end; ++i) chunk = fma1(a(i), b(i), chunk);
    total = c == 0 ? chunk : total + chunk;
  }
  return total;
}

struct AttentionScores {
  const float *q, *k, *slopes;  // slopes: null without
  float* out;
  int64_t count, heads, groups, depth;
  AttentionSeen seen;
  F32 scale, cap;
  int64_t capped;
};
TS_KERNEL(attention_scores, AttentionScores, 256) {
  for (int64_t e = first_item(); e < p.count; e += item_step()) {
    const int64_t row = e / p.seen.keys, j = e - row * p.seen.keys;
    const int64_t above = row / p.seen.queries;  // (batch, head)
    const Ends ends = ends_of(p.seen, row - above * p.seen.queries);
    float s = 0.0f;
    if (j >= ends.lo && j <= ends.hi) {
      const float* q = p.q + row * p.depth;
      const float* k = p.k + (above / (p.heads / p.groups) * p.seen.keys + j) * p.depth;
      s = chunked_dot(0, p.depth, [=](int64_t d) { return q[d]; }, [=](int64_t d) { return k[d]; });
      s = score_of(s, p.scale.value, p.capped != 0, p.cap.value);
      if (p.slopes != nullptr) s = sloped(s, p.slopes[above % p.heads], static_cast<float>(j));
    }
    put1(p.out + e, s);
  }
}

struct AttentionWeights {
  const float *s, *sinks;  // sinks: null without
  float* out;              // may be s
  int64_t rows, heads;
  AttentionSeen seen;
};
template <class Team>
TS_INLINE void weights_row(const Team& team, const AttentionWeights& p, int64_t r) {
  const int64_t above = r / p.seen.queries, keys = p.seen.keys;
  const Ends ends = ends_of(p.seen, r - above * p.seen.queries);
  const int64_t lo = ends.lo, hi = ends.hi, before = p.sinks == nullptr ? 0 : 1;
  const float* x = p.s + r * keys;
  float* y = p.out + r * keys;
  const float sink = before == 0 ? 0.0f : p.sinks[above % p.heads];
  // A key has one number in all three passes, so that a warp's lane finds what it stored itself.
  const float m = team.template fold<Max>(before + hi + 1, [=](int64_t i) {
    const int64_t key = i - before;
    return key < 0 ? sink : key < lo ? Max::identity() : x[key];
  });
  const float total = team.template fold<Sum>(before + hi + 1, [=](int64_t i) {
    const int64_t key = i - before;
    if (key < 0) return exp_below(sink, m);
    return key < lo ? 0.0f : (y[key] = exp_below(x[key], m));
  });
  team.each(before + keys,
            [=](int64_t i) {
              const int64_t key = i - before;
              return key >= lo && key <= hi ? y[key] : 0.0f;
            },
            [=](int64_t i, float e) {
              const int64_t key = i - before;
              if (key >= 0) put1(y + key, key >= lo && key <= hi ? softmax_of(e, total) : 0.0f);
            });
}
TS_ROWS(attention_weights, AttentionWeights, weights_row)

struct AttentionValues {
  const float *w, *v;
  float* out;
  int64_t count, heads, groups, width;
  AttentionSeen seen;
};
TS_KERNEL(attention_values, AttentionValues, 256) {
  for (int64_t e = first_item(); e < p.count; e += item_step()) {
    const int64_t row = e / p.width, column = e - row * p.width;
    const int64_t above = row / p.seen.queries, width = p.width;
    const Ends ends = ends_of(p.seen, row - above * p.seen.queries);
    const float* w = p.w + row * p.seen.keys;
    const float* v = p.v + above / (p.heads / p.groups) * p.seen.keys * width + column;
    put1(p.out + e, chunked_dot(ends.lo, ends.hi + 1, [=](int64_t j) { return w[j]; },
                                [=](int64_t j) { return v[j * width]; }));
  }
}

}  // namespace tallystick::TS_ISA
