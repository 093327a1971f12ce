// Many exact sums at once: the division of elements among threads, and of operands into lines.
// Every result is that of the exact sum, so no cut and no order shows.
#pragma once
#include "families/rounding.hpp"

namespace tallystick {

// A matrix as a kernel sees it: line x's term k is data[x·s_x + k·s_k].
struct View {
  const float* data = nullptr;
  size_t lines = 0;
  ptrdiff_t s_x = 0, s_k = 0;
};

// Element e is the sum over k of a(i[e], k)·b(j[e], k), or of a(i[e], k) where b has no data, plus
// c[e] if there is a c.
struct ExactJob {
  View a, b;
  const int64_t *i = nullptr, *j = nullptr;
  const float* c = nullptr;
  size_t n = 0, terms = 0;
};

// out[e] = R of element e.
void exact_values(const ExactJob& job, int b, float* out);
// The accumulator record of element e at out + 80·e (NUMERICS 13.5).
void exact_records(const ExactJob& job, uint8_t* out);
// SUM64 (NUMERICS 14.4) of `terms` terms of each line of v.
void sums64_of(const View& v, size_t terms, Sum64 what, double* out);

}  // namespace tallystick
