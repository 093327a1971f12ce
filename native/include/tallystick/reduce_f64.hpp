// The SUM rule in binary64 for NUMERICS 3.6: the structure of 3.1, each addition RN64. Plain loops over
// 32 independent lanes, which compilers turn into vectors without reordering anything.
#pragma once
#include "tallystick/reduce.hpp"

namespace tallystick::TS_ISA {

// Elements [base, base + n) of f, 1 <= n <= 256.
template <class F>
TS_INLINE double sum64_block(size_t base, size_t n, const F& f) {
  alignas(64) double acc[kSumLanes];
  for (size_t l = 0; l < kSumLanes; ++l) acc[l] = -0.0;
  size_t i = 0;
  for (; i + kSumLanes <= n; i += kSumLanes)
    for (size_t l = 0; l < kSumLanes; ++l) acc[l] = acc[l] + f(base + i + l);
  for (size_t l = 0; i + l < n; ++l) acc[l] = acc[l] + f(base + i + l);
  for (size_t s = kSumLanes / 2; s >= 1; s /= 2)
    for (size_t l = 0; l < s; ++l) acc[l] = acc[l] + acc[l + s];
  return acc[0];
}

// SUM of n elements whose blocks are block(base, n): blocks, blocks of block values, and so on; depth
// is at most 8 (256^8 = 2^64).
template <class F>
__attribute__((noinline)) double sum64_of_blocks(size_t n, const F& block) {
  constexpr size_t kLevels = 8;
  if (n == 0) return 0.0;
  double value[kLevels][kSumBlock];
  size_t held[kLevels] = {}, seen[kLevels] = {};
  const auto block_of = [&](size_t k) {
    const double* v = value[k];
    return sum64_block(0, held[k], [=](size_t i) TS_LAMBDA { return v[i]; });
  };
  const auto push = [&](double v, size_t level) {
    for (size_t k = level; k < kLevels; ++k) {
      ++seen[k];
      if (held[k] < kSumBlock) {
        value[k][held[k]++] = v;
        return;
      }
      const double full = block_of(k);
      value[k][0] = v;
      held[k] = 1;
      v = full;
    }
  };
  for (size_t b = 0; b < n; b += kSumBlock) push(block(b, ts_min(kSumBlock, n - b)), 0);
  for (size_t k = 0; k + 1 < kLevels; ++k) {
    if (seen[k] == 1) return value[k][0];
    const double v = block_of(k);
    if (seen[k] <= kSumBlock) return v;
    push(v, k + 1);
  }
  return value[kLevels - 1][0];
}

// SUM of f's n elements.
template <class F>
TS_INLINE double sum64_of(size_t n, const F& f) {
  return sum64_of_blocks(
      n, [=](size_t base, size_t m) TS_LAMBDA { return sum64_block(base, m, f); });
}

}  // namespace tallystick::TS_ISA
