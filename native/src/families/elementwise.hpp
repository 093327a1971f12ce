// Elementwise arithmetic and activations (NUMERICS 6.11, 7.4, 8.5, 9, 10).
#pragma once
#include <cstddef>

#include "dispatch.hpp"

namespace tallystick {

// name, number of operands, signature: f = binary32 in and out, c = binary32 to bool,
// m = (binary32, bool) to binary32, w = (bool, binary32, binary32) to binary32.
#define TS_EW_OPS(X)                                                                          \
  X(neg, 1, f) X(abs, 1, f) X(reciprocal, 1, f) X(sqrt, 1, f) X(rsqrt, 1, f) X(square, 1, f)  \
  X(cube, 1, f) X(relu, 1, f) X(silu, 1, f) X(leaky_relu, 1, f) X(clamp_min, 1, f)            \
  X(clamp_max, 1, f) X(clamp, 1, f)                                                           \
  X(add, 2, f) X(sub, 2, f) X(mul, 2, f) X(div, 2, f) X(add_alpha, 2, f) X(sub_alpha, 2, f)   \
  X(maximum, 2, f) X(minimum, 2, f) X(threshold_backward, 2, f) X(silu_backward, 2, f)        \
  X(tanh_backward, 2, f) X(sigmoid_backward, 2, f) X(squared_difference, 2, f)                \
  X(mse_backward, 3, f) X(mse_backward_mean, 3, f)                                            \
  X(eq, 2, c) X(ne, 2, c) X(lt, 2, c) X(le, 2, c) X(gt, 2, c) X(ge, 2, c)                     \
  X(mask_scale, 2, m) X(masked_fill, 2, m) X(where, 3, w)

enum class EwOp : int {
#define TS_EW_ENUM(name, arity, kind) name,
  TS_EW_OPS(TS_EW_ENUM)
#undef TS_EW_ENUM
      count
};
constexpr size_t kEwOps = static_cast<size_t>(EwOp::count);
constexpr size_t kEwArity = 3;

struct EwOperand {
  const void* data;
  ptrdiff_t stride;  // elements; 0 for one value throughout
};

// out[0..n) is contiguous and may be the same memory as an operand of stride 1 and equal size.
using EwFn = void (*)(const EwOperand* in, void* out, size_t n, const float* param);

struct ElementwiseTable {
  EwFn fn[kEwOps];
  // Transposing copy of 4-byte elements: out[i*out_ld + j] = x[i + j*ld], rows i, columns j.
  void (*transpose4)(const void* x, size_t ld, void* out, size_t out_ld, size_t rows, size_t cols);
  // Rows of `bytes` bytes, `stride` bytes apart in x (which may be negative), end to end in out.
  void (*copy_rows)(const char* x, ptrdiff_t stride, char* out, size_t bytes, size_t rows);
};

TS_DECLARE_TABLES(ElementwiseTable, elementwise)

}  // namespace tallystick
