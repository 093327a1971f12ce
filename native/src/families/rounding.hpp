// The kernels of `rounded/1` and `replay/1` (NUMERICS 13, 14): the grid, the elements whose
// rounding is in doubt, exact sums, and the sums of their bounds.
#pragma once
#include <cstddef>
#include <cstdint>

#include "dispatch.hpp"
#include "tallystick/exact_types.hpp"

namespace tallystick {

// A running sum of the fast pass. Only the path that filled it reads it.
constexpr size_t kDotStateLanes = 32;
struct DotState {
  alignas(64) double sum[kDotStateLanes] = {}, low[kDotStateLanes] = {}, size[kDotStateLanes] = {};
  size_t terms = 0;
};

enum class Sum64 : int { squares = 0, sizes = 1 };  // x·x, |x|

struct RoundingTable {
  // out = R(w) of n elements.
  void (*grid)(const double* w, size_t n, int b, float* out);
  // The same, and the positions (ascending, to `found`, room for n) where R is in doubt within t·E,
  // E = ea·eb[j] (+ ec[j] unless null). Returns the number of positions.
  size_t (*doubt)(const double* w, double ea, const double* eb, const double* ec, double t, size_t n,
                  int b, float* out, uint32_t* found);
  void (*dot_products)(DotState& state, const float* a, const float* b, size_t n);
  void (*dot_terms)(DotState& state, const float* x, size_t n);
  bool (*dot_decide)(const DotState& state, int b, float* out);
  // These leave the digits carried.
  void (*acc_products)(ExactAcc& acc, const float* a, const float* b, size_t n);
  void (*acc_terms)(ExactAcc& acc, const float* x, size_t n);
  float (*acc_round)(const ExactAcc& acc, int b);
  void (*acc_store)(const ExactAcc& acc, uint8_t* record);
  void (*acc_load)(const uint8_t* record, ExactAcc& acc);
  // SUM64 of n terms `step` apart.
  double (*sum64_row)(const float* x, size_t n, ptrdiff_t step, Sum64 what);
  // SUM64 down cols <= 64 adjacent columns of x, rows `step` apart. scratch: sum64_scratch(n).
  void (*sum64_columns)(const float* x, size_t n, ptrdiff_t step, size_t cols, Sum64 what,
                        double* out, double* scratch);
  size_t (*sum64_scratch)(size_t n);
};

constexpr size_t kSum64Columns = 64;

TS_DECLARE_TABLES(RoundingTable, rounding)

}  // namespace tallystick
