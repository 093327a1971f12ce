// The kernels of `exact/1` (NUMERICS 17): integers of groups, their products from 8-bit digits, and
// the totals of blocks.
#pragma once
#include <cstddef>
#include <cstdint>

#include "dispatch.hpp"

namespace tallystick {

constexpr size_t kDigitPad = 32;  // a row of digits is padded to a multiple of it with zeros

struct ExactTable {
  // The bits of the largest magnitude of n elements, `step` apart.
  uint32_t (*most)(const float* x, size_t n, ptrdiff_t step);
  // m(x) of n elements of a group whose largest magnitude is mu.
  void (*integers)(const float* x, size_t n, ptrdiff_t step, uint32_t mu, int width, float* out);
  // The digits of n integers: digit d of integer k at to[d * padded + k].
  void (*digits)(const float* m, size_t n, size_t padded, int count, int16_t* to);
  // out[i, j], rows `ldo` apart: the dot products of rows of digits, each `padded` long.
  void (*products)(const int16_t* a, size_t m, const int16_t* b, size_t n, size_t padded, int count,
                   double* out, size_t ldo);
  // total[j] = (first ? v : total[j] + v), v the value of a block with the sum w[j].
  void (*add)(const double* w, uint32_t mu_a, const uint32_t* mu_b, size_t n, int width, bool first,
              double* total);
  void (*round)(const double* total, size_t n, float* out);
};

TS_DECLARE_TABLES(ExactTable, exact)

}  // namespace tallystick
