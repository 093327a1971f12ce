// The published rounding log of `replay/1`: R, log and rev of NUMERICS 14.9, and x of an Adam step,
// for which stock kernels take eight passes. All functions are elementwise. In a log five entries
// make a byte (COMMITMENTS 10.3), so work is cut by groups of five elements.
#pragma once
#include <cstddef>
#include <cstdint>

#include "dispatch.hpp"

namespace tallystick {

constexpr int kMinExponent10 = -324, kMaxExponent10 = 308;

struct PublishedForm {
  int bits;               // 20..32 of the encoding are kept (13.1)
  bool plus_zero;         // a zero loses its sign (rounded operators: 13.2)
  double tau;             // T * 2^-40, exact
  const double* tens;     // RN64(10^k), k from kMinExponent10; null for scale=binary
};

// One Adam or AdamW step of NUMERICS 11.2, 11.3 in binary64 from binary32 operands: x of 14.9.
struct AdamStep64 {
  const float *p, *g, *m, *v;
  double scale;                // of g: the clip coefficient, or 1
  double rest1, beta2, rest2;  // 1 - beta1, beta2, 1 - beta2
  double eps, root, step_size;  // root: sqrt(1 - beta2^t)
  double kept, decay;          // factors of p: 1 - lr * decay into the result, decay into g
  double *p_out, *m_out, *v_out;
};

struct PublishedTable {
  // Elements [5*begin, min(5*end, n)): the value, and the entries that a trainer logs.
  void (*log)(const PublishedForm& f, const double* x, size_t n, size_t begin, size_t end,
              float* out, uint8_t* packed);
  // The same elements under given entries; returns the number of elements that the entries changed.
  // A packed byte above 242 counts as five entries 1: the reader of the log has already refused it.
  size_t (*follow)(const PublishedForm& f, const double* x, size_t n, size_t begin, size_t end,
                   const uint8_t* packed, float* out);
  // Elements [begin, end).
  void (*adam)(const AdamStep64& s, size_t begin, size_t end);
};

TS_DECLARE_TABLES(PublishedTable, published)

}  // namespace tallystick
