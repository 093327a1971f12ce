// The correctly rounded elementary functions over arrays (NUMERICS, elementary functions).
#pragma once
#include <cstddef>

#include "dispatch.hpp"

namespace tallystick {

using UnaryFn = void (*)(const float* x, float* y, size_t n);  // y may be x

#define TS_UNARY(X) \
  X(exp) X(log) X(tanh) X(erf) X(sigmoid) X(sin) X(cos) X(rsqrt) X(expm1) X(log1p) X(exp2) X(log2)

struct ElementaryTable {
#define TS_UNARY_FN(name) UnaryFn name;
  TS_UNARY(TS_UNARY_FN)
#undef TS_UNARY_FN
  // out[i] = x[i]^y[i]; y_step 0 uses y[0] throughout. out may be x or y.
  void (*pow)(const float* x, const float* y, size_t y_step, float* out, size_t n);
};

TS_DECLARE_TABLES(ElementaryTable, elementary)

struct NamedUnary {
  const char* name;
  UnaryFn ElementaryTable::*fn;
};
constexpr NamedUnary kUnary[] = {
#define TS_UNARY_NAMED(name) {#name, &ElementaryTable::name},
    TS_UNARY(TS_UNARY_NAMED)
#undef TS_UNARY_NAMED
};

}  // namespace tallystick
