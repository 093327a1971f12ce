// The pointwise loops on binary32, and moves of bits (NUMERICS 6.7 to 6.11, 7.4, 8.5, 9, 10).
#pragma once
#include <cstddef>

#include "dispatch.hpp"
#include "tallystick/pointwise_loops.hpp"

namespace tallystick {

// The rendered loops, and two that move bits: b = (binary32, bool) to binary32, w = (bool,
// binary32, binary32) to binary32.
#define TS_EW_OPS(X) TS_POINTWISE(X) X(masked_fill, 2, b, 1) X(where, 3, w, 1)

struct EwInfo {
  const char* name;
  size_t arity;
  char kind;  // see pointwise_loops.hpp
  size_t work;
  bool takes_mask(size_t operand) const {
    return ((kind == 'm' || kind == 'b') && operand == 1) || (kind == 'w' && operand == 0);
  }
};
constexpr EwInfo kEwInfo[] = {
#define TS_EW_INFO(name, arity, kind, work) {#name, arity, #kind[0], work},
    TS_EW_OPS(TS_EW_INFO)
#undef TS_EW_INFO
};
constexpr size_t kEwOps = sizeof kEwInfo / sizeof *kEwInfo;
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
