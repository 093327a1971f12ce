// SUM64 (NUMERICS 3.1, 3.6) down adjacent columns, at most kSum64Columns of them.
#pragma once
#include "families/rounding.hpp"
#include "tallystick/reduce.hpp"
#include "tallystick/reduce_f64.hpp"
#include "tallystick/simd_f64.hpp"

namespace tallystick::TS_ISA {

// A block of n <= 256 terms of `width` columns, to out. Row by row, so that a row's cache lines are
// read once even where all rows fall into one set of the cache; the lanes stay in the first level.
template <class F>
TS_INLINE void sum64_block_columns(size_t n, size_t width, const F& f, double* out) {
  alignas(64) double lane[kSumLanes * kSum64Columns];
  for (size_t i = 0; i < kSumLanes; ++i)  // -0 + x is x
    for (size_t j = 0; j < width; j += kF64Lanes)
      d_store(lane + i * width + j, i < n ? f(i, j) : d_set1(-0.0));
  for (size_t i = kSumLanes; i < n; ++i) {
    double* acc = lane + i % kSumLanes * width;
    for (size_t j = 0; j < width; j += kF64Lanes)
      d_store(acc + j, d_add(d_load(acc + j), f(i, j)));
  }
  for (size_t s = kSumLanes / 2; s >= 1; s /= 2)
    for (size_t j = 0; j < s * width; j += kF64Lanes)
      d_store(lane + j, d_add(d_load(lane + j), d_load(lane + s * width + j)));
  for (size_t j = 0; j < width; ++j) out[j] = lane[j];
}

// Doubles of scratch for n terms of `width` columns.
inline size_t sum64_columns_scratch(size_t n, size_t width) {
  size_t all = 0;
  do {
    n = ceil_div(n, kSumBlock);
    all += n * width;
  } while (n > 1);
  return all;
}

// SUM64 of `width` columns (a multiple of kF64Lanes), term(i, j) being term i of the register of
// columns from j on; to out[width].
template <class F>
TS_INLINE void sum64_columns_of(size_t n, size_t width, const F& term, double* out, double* scratch) {
  if (n == 0) {
    for (size_t j = 0; j < width; ++j) out[j] = 0.0;
    return;
  }
  size_t blocks = ceil_div(n, kSumBlock);
  for (size_t b = 0; b < blocks; ++b)
    sum64_block_columns(
        ts_min(kSumBlock, n - b * kSumBlock), width,
        [=](size_t i, size_t j) TS_LAMBDA { return term(b * kSumBlock + i, j); },
        scratch + b * width);
  while (blocks > 1) {
    const double* values = scratch;
    const size_t held = blocks;
    scratch += held * width;
    blocks = ceil_div(held, kSumBlock);
    for (size_t b = 0; b < blocks; ++b)
      sum64_block_columns(
          ts_min(kSumBlock, held - b * kSumBlock), width,
          [=](size_t i, size_t j) TS_LAMBDA {
            return d_load(values + (b * kSumBlock + i) * width + j);
          },
          scratch + b * width);
  }
  for (size_t j = 0; j < width; ++j) out[j] = scratch[j];
}

}  // namespace tallystick::TS_ISA
