// SUM64 (NUMERICS 3.1, 3.6) down adjacent columns: one register of columns at a time, a lane's eight
// terms of a block in a register, so that lane sums never travel through memory.
#pragma once
#include "tallystick/reduce.hpp"
#include "tallystick/reduce_f64.hpp"
#include "tallystick/simd_f64.hpp"

namespace tallystick {
namespace TS_ISA {

// A block of n <= 256 terms, f(i) being term i of every column of the register.
template <class F>
TS_INLINE f64v sum64_block_columns(size_t n, const F& f) {
  f64v lane[kSumLanes];
  for (size_t l = 0; l < kSumLanes; ++l) {
    f64v s = d_set1(-0.0);
    for (size_t i = l; i < n; i += kSumLanes) s = d_add(s, f(i));
    lane[l] = s;
  }
  for (size_t s = kSumLanes / 2; s >= 1; s /= 2)
    for (size_t l = 0; l < s; ++l) lane[l] = d_add(lane[l], lane[l + s]);
  return lane[0];
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
    for (size_t j = 0; j < width; j += kF64Lanes)
      d_store(scratch + b * width + j,
              sum64_block_columns(ts_min(kSumBlock, n - b * kSumBlock), [=](size_t i) TS_LAMBDA {
                return term(b * kSumBlock + i, j);
              }));
  while (blocks > 1) {
    const double* values = scratch;
    const size_t held = blocks;
    scratch += held * width;
    blocks = ceil_div(held, kSumBlock);
    for (size_t b = 0; b < blocks; ++b)
      for (size_t j = 0; j < width; j += kF64Lanes)
        d_store(scratch + b * width + j,
                sum64_block_columns(ts_min(kSumBlock, held - b * kSumBlock),
                                    [=](size_t i) TS_LAMBDA {
                                      return d_load(values + (b * kSumBlock + i) * width + j);
                                    }));
  }
  for (size_t j = 0; j < width; ++j) out[j] = scratch[j];
}

}  // namespace TS_ISA
}  // namespace tallystick
