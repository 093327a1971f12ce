// A sum in twice binary64's precision with a proven bound. It decides most roundings without the
// exact accumulator. Each rounding that it decides is R of the exact sum, so no result shows its
// use.
#pragma once
#include "families/rounding.hpp"
#include "tallystick/grid.hpp"

namespace tallystick {
namespace TS_ISA {

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
TS_INLINE double two_sum(double& s, double p) {
  const double t = s + p, z = t - s, error = (s - (t - z)) + (p - z);
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

// h + r rounded to odd: R of it is R of the exact sum.
TS_INLINE double add_odd(double h, double r) {
  const double error = two_sum(h, r);
  const uint64_t u = double_bits(h);
  if (error == 0 || (u & 1)) return h;
  return bits_double((error > 0) == (h > 0) ? u + 1 : u - 1);
}

// R(v*) of the state's terms, if the state decides it.
//
// Bound: v* is the leading sum and the N = terms + lanes errors of the two-sums, exactly. Each error
// is at most u·(1 + N·u)·S, S = Σ|term|, so adding them up in any order loses at most
// N·u·(1 + N·u)·N·u·(1 + N·u)·S. The computed `size` is at least (1 - N·u)·S, and N·u <= 2^-27: twice
// N²·u²·size covers all of it. The same again covers the rounding of low ± bound, |low| being at most
// u·|sum| <= u·S and N at least 4. Terms are multiples of 2^-298 and at most 2^256 (NUMERICS 14.4.1):
// nothing underflows, nothing overflows.
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
  if (!(size <= 0x1p300)) return false;  // some term is not finite
  const double n = static_cast<double>(state.terms + 2 * kDotLanes);
  const double bound = 4 * n * n * 0x1p-106 * size;
  low = two_sum(sum, low);
  const float r = grid1(add_odd(sum, low - bound), b);
  if (float_bits(r) != float_bits(grid1(add_odd(sum, low + bound), b))) return false;
  *out = r;
  return true;
}

}  // namespace TS_ISA
}  // namespace tallystick
