// A sum in twice binary64's precision with a proven bound. It decides most roundings without the
// exact accumulator. Each rounding that it decides is R of the exact sum, so no result shows its
// use.
#pragma once
#include "families/rounding.hpp"
#include "tallystick/exact_sum.hpp"

namespace tallystick::TS_ISA {

constexpr size_t kDotRegs = 4;  // enough independent chains to hide an addition's latency
constexpr size_t kDotLanes = kDotRegs * kF64Lanes;
static_assert(kDotLanes <= kDotStateLanes, "the state holds every path's lanes");

// s + p exactly, as the new s and its error, which is returned (Knuth).
TS_INLINE f64v d_two_sum(f64v& s, f64v p) {
  const f64v t = d_add(s, p), z = d_sub(t, s);
  const f64v error = d_add(d_sub(s, d_sub(t, z)), d_sub(p, z));
  s = t;
  return error;
}

// Adds n terms to the state: vector(k) gives those from k on, single(k) one.
template <class V, class S>
TS_INLINE void dot_terms(DotState& state, size_t n, const V& vector, const S& single) {
  f64v sum[kDotRegs], low[kDotRegs], size[kDotRegs];
  for (size_t r = 0; r < kDotRegs; ++r) {
    sum[r] = d_load(state.sum + r * kF64Lanes);
    low[r] = d_load(state.low + r * kF64Lanes);
    size[r] = d_load(state.size + r * kF64Lanes);
  }
  const f64v magnitude = d_set1_bits(0x7fffffffffffffffu);
  size_t k = 0;
  for (; k + kDotLanes <= n; k += kDotLanes)
    for (size_t r = 0; r < kDotRegs; ++r) {
      const f64v p = vector(k + r * kF64Lanes);
      low[r] = d_add(low[r], d_two_sum(sum[r], p));
      size[r] = d_add(size[r], d_and(p, magnitude));
    }
  for (size_t r = 0; r < kDotRegs; ++r) {
    d_store(state.sum + r * kF64Lanes, sum[r]);
    d_store(state.low + r * kF64Lanes, low[r]);
    d_store(state.size + r * kF64Lanes, size[r]);
  }
  for (size_t l = 0; k < n; ++k, ++l) {
    const double p = single(k);
    state.low[l] += two_sum(state.sum[l], p);
    state.size[l] += __builtin_fabs(p);
  }
  state.terms += n;
}

// R(v*) of the state's terms, if the state decides it (exact_sum.hpp).
inline bool dot_decide(const DotState& state, int b, float* out) {
  if (state.terms > (size_t(1) << 26) - kDotLanes) return false;
  // The registers into one, then its lanes: a chain over all lanes would cost more than short sums.
  f64v sums = d_load(state.sum), lows = d_load(state.low), sizes = d_load(state.size);
  for (size_t r = kF64Lanes; r < kDotLanes; r += kF64Lanes) {
    lows = d_add(lows, d_add(d_two_sum(sums, d_load(state.sum + r)), d_load(state.low + r)));
    sizes = d_add(sizes, d_load(state.size + r));
  }
  double lane[3][kF64Lanes];
  d_store(lane[0], sums);
  d_store(lane[1], lows);
  d_store(lane[2], sizes);
  double sum = lane[0][0], low = lane[1][0], size = lane[2][0];
  for (size_t l = 1; l < kF64Lanes; ++l) {
    low += two_sum(sum, lane[0][l]) + lane[1][l];
    size += lane[2][l];
  }
  const double n = static_cast<double>(state.terms + 2 * kDotLanes);
  return sum_decide(sum, low, size, n, b, out);
}

}  // namespace tallystick::TS_ISA
