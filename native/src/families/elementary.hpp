// The correctly rounded elementary functions over arrays (NUMERICS, elementary functions).
#pragma once
#include <cstddef>

#include "dispatch.hpp"

namespace tallystick {

using UnaryFn = void (*)(const float* x, float* y, size_t n);  // y may be x

struct ElementaryTable {
  UnaryFn exp, log, tanh, erf, sigmoid, sin, cos, rsqrt, expm1, log1p, exp2, log2;
  // out[i] = x[i]^y[i]; y_step 0 uses y[0] throughout. out may be x or y.
  void (*pow)(const float* x, const float* y, size_t y_step, float* out, size_t n);
};

TS_DECLARE_TABLES(ElementaryTable, elementary)

}  // namespace tallystick
