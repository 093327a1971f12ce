// A sum as two numbers of binary64 with a proven bound, one addition at a time. exact_dot.hpp has the
// same over registers of the processor; native/cuda/exact.hpp lets a warp share the terms.
#pragma once
#include "tallystick/grid.hpp"

namespace tallystick::TS_ISA {

// s + p exactly, as the new s and its error, which is returned (Knuth).
TS_INLINE double two_sum(double& s, double p) {
  const double t = s + p, z = t - s, error = (s - (t - z)) + (p - z);
  s = t;
  return error;
}

// h + r rounded to odd: R of it is R of the exact sum.
TS_INLINE double add_odd(double h, double r) {
  const double error = two_sum(h, r);
  const uint64_t u = double_bits(h);
  if (error == 0 || (u & 1)) return h;
  return bits_double((error > 0) == (h > 0) ? u + 1 : u - 1);
}

// R(v*), if it is decided by the leading sum, the sum of the errors of `n` two-sums, and the sum of
// the terms' magnitudes.
//
// Bound: v* is the leading sum and the N <= n errors of the two-sums, exactly. Each error is at most
// u·(1 + N·u)·S, S = Σ|term|, so adding them up in any order loses at most
// N·u·(1 + N·u)·N·u·(1 + N·u)·S. The computed `size` is at least (1 - N·u)·S. With N <= 2^33, N·u is at
// most 2^-20: twice N²·u²·size covers all of it. The same again covers the rounding of low ± bound,
// |low| being at most u·|sum| <= u·S and N at least 4. Terms are multiples of 2^-298 and at most 2^256
// (NUMERICS 14.4.1): nothing underflows, nothing overflows.
TS_INLINE bool sum_decide(double sum, double low, double size, double n, int b, float* out) {
  if (!(size <= 0x1p300)) return false;  // some term is not finite
  const double bound = 4 * n * n * 0x1p-106 * size;
  low = two_sum(sum, low);
  const float r = grid1(add_odd(sum, low - bound), b);
  if (float_bits(r) != float_bits(grid1(add_odd(sum, low + bound), b))) return false;
  *out = r;
  return true;
}

}  // namespace tallystick::TS_ISA
