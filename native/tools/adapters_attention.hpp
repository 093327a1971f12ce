// Vector calls of the attention table (NUMERICS 18).
#pragma once
#include "adapters_dot.hpp"
#include "families/attention.hpp"

namespace vectors {

inline AttentionSeen seen_of(const Case& c, size_t queries, size_t keys) {
  return {c.flag("causal"), c.i("first"), c.i("window"), queries, keys};
}

inline void run_scores(Case& c) {
  const Sizes &q = c.in[0].shape, &k = c.in[1].shape;
  const size_t rows = q[1] / k[1] * q[2], depth = q[3], keys = k[2];
  GemmProblem p = product(c.in[0].f32(), nullptr, c.got[0].f32(), rows, depth, keys);
  p.b = strided(c.in[1].f32(), depth, 1);
  done(TS_DISPATCH(gemm).bmm(p, q[0] * k[1], static_cast<ptrdiff_t>(rows * depth),
                             static_cast<ptrdiff_t>(keys * depth),
                             static_cast<ptrdiff_t>(rows * keys)));
  const double cap = c.f("softcap");
  const AttentionScores s = {seen_of(c, q[2], keys),
                             {static_cast<float>(c.f("scale")), cap != 0.0,
                              static_cast<float>(cap), c.input(2).f32()},
                             q[1], c.got[0].f32()};
  TS_DISPATCH(attention).scores(s, 0, q[0] * q[1] * q[2]);
}

inline void run_weights(Case& c) {
  const Sizes& s = c.in[0].shape;
  const AttentionTable& table = TS_DISPATCH(attention);
  std::vector<float> scratch(table.weights_scratch(s[3]));
  table.weights({seen_of(c, s[2], s[3]), s[1], c.in[0].f32(), c.input(1).f32(), c.got[0].f32()}, 0,
                s[0] * s[1] * s[2], scratch.data());
}

inline void run_values(Case& c) {
  const Sizes &w = c.in[0].shape, &v = c.in[1].shape;
  TS_DISPATCH(attention).values({seen_of(c, w[2], w[3]), w[1], v[1], v[3], c.in[0].f32(),
                                 c.in[1].f32(), c.got[0].f32()},
                                0, v[0] * v[1] * w[2]);
}

}  // namespace vectors
