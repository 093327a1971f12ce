// Reductions (NUMERICS 3) over a tensor seen as [outer][n][inner], where n is reduced.
#pragma once
#include <cstddef>
#include <cstdint>

#include "dispatch.hpp"

namespace tallystick {

enum class Term : int { value = 0, square = 1 };  // x, x*x
enum class Extreme : int { max = 0, min = 1 };

struct ReduceTable {
  // SUM of one row's terms over `divisor` if it is not null.
  float (*row)(const float* x, size_t n, Term term, const float* divisor);
  // Values of blocks [first, last) of a row of n (NUMERICS 3.1), to out[0 ..).
  void (*row_blocks)(const float* x, size_t n, Term term, size_t first, size_t last, float* out);
  // SUM of the columns [col, col + cols) of x[n][inner], cols <= 64. scratch: column_scratch(n).
  void (*columns)(const float* x, size_t n, size_t inner, size_t col, size_t cols,
                  const float* divisor, float* out, float* scratch);
  size_t (*column_scratch)(size_t n);
  float (*row_extreme)(const float* x, size_t n, Extreme which);
  void (*column_extreme)(const float* x, size_t n, size_t inner, size_t col, size_t cols,
                         Extreme which, float* out);
  int64_t (*row_argmax)(const float* x, size_t n);
  // One row of 3.6; divisor: max(n - correction, 0).
  void (*var_mean)(const float* x, size_t n, double divisor, float* var, float* mean);
};

constexpr size_t kReduceColumns = 64;  // columns of one call

TS_DECLARE_TABLES(ReduceTable, reduce)

}  // namespace tallystick
