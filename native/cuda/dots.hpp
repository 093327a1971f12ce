// What the kernels of rounded.cu and replay.cu share: the binary64 of an element with its bound
// (NUMERICS 14.4), and where its value goes.
#pragma once
#include "exact.hpp"
#include "folds.hpp"
#include "operands.hpp"

namespace tallystick::TS_ISA {

// --- the decision --------------------------------------------------------------------------------
// Element (g, i, c) of the output lies at ((c / plane·batches + g)·rows + i)·plane + c % plane, where
// `batches` counts those of one image. w has it at [z][i - first_row][c - first_column] of each part.
struct Decision {
  const double* w;
  int64_t parts, w_batches, w_rows, w_columns;  // of one part
  int64_t first_batch, first_row, first_column;
  int64_t batches, rows, plane;
  // SUM64 of the squares of line x of batch g, at g % period·lines + x; of b's, in parts.
  const double *a_squares, *b_squares;
  int64_t a_period, a_lines, b_lines, b_parts, b_step;
  F64 factor, share;   // RN64(K)·C of 14.4; |w - v*| <= share·E
  int64_t b_first;     // 14.4 takes the factors of E in the other order: line b is its a
  const float* last;   // at g·last_batch + i·last_row + c % plane·last_column; or null
  int64_t last_batch, last_row, last_column;
  int64_t is_term;     // it is the last term; else 2.5 goes on from R
  int64_t scales, adds, scales_last;
  F32 alpha, beta;
  int64_t bits, terms;  // terms: products
  float* out;
};
struct Element { int64_t at, g, i, c; };
TS_INLINE Element element_of(const Decision& p, int64_t e) {
  const int64_t line = quotient_of_any(e, p.w_columns), z = quotient_of_any(line, p.w_rows);
  return {e, p.first_batch + z, p.first_row + line - z * p.w_rows,
          p.first_column + e - line * p.w_columns};
}
TS_INLINE float last_of(const Decision& p, const Element& e) {
  const int64_t place = e.c - quotient_of_any(e.c, p.plane) * p.plane;
  return p.last[e.g * p.last_batch + e.i * p.last_row + place * p.last_column];
}

// The terms of an element (13.3), the last one being its own.
TS_INLINE int64_t terms_of(const Decision& p) { return p.terms + (p.is_term ? 1 : 0); }
template <class A, class B>
struct Terms {
  const Decision& p;
  Element e;
  const A& a;
  const B& b;
  TS_INLINE double operator()(int64_t k) const {
    if (k == p.terms) return static_cast<double>(last_of(p, e));
    return a.at(e.g, e.i, k) * b.at(e.g, e.c, k);
  }
};
template <class A, class B>
TS_INLINE Terms<A, B> term_of(const Decision& p, const Element& e, const A& a, const B& b) {
  return {p, e, a, b};
}

// The binary64 w of an element and E of 14.4, which is exact where b's squares are in one part; and
// whether an operand is a NaN, which the sums of squares show.
struct Near { double w, bound; bool nan; };
TS_INLINE Near near_of(const Decision& p, const Element& e) {
  const int64_t size = p.w_batches * p.w_rows * p.w_columns;
  double w = p.w[e.at];
  for (int64_t q = 1; q < p.parts; ++q) w += p.w[q * size + e.at];
  const int64_t a_batch = e.g - quotient_of_any(e.g, p.a_period) * p.a_period;
  const double a = p.a_squares[a_batch * p.a_lines + e.i];
  const double* of_b = p.b_squares + (e.g * p.b_lines + e.c);
  double b = of_b[0];
  for (int64_t q = 1; q < p.b_parts; ++q) b += of_b[q * p.b_step];
  double bound = p.factor.value * sqrt1(p.b_first ? b : a) * sqrt1(p.b_first ? a : b);
  if (p.is_term) {
    const double c = static_cast<double>(last_of(p, e));
    w += c;
    bound += p.factor.value * magnitude(c);
  }
  return {w, bound, a != a || b != b};
}

// R(w), and whether it is in doubt. The ends are w ∓ d with d = share·E·(1 + 2^-50) + |w|·2^-52. E is
// computed as 14.4 says. The added amounts pay for the roundings of d (at most four of 2^-53,
// relatively) and of the ends. Where w or E is not finite, d is not.
struct Judged { float r; bool doubt; };
TS_INLINE Judged judge(const Near& near, double share, int bits) {
  const double d = share * near.bound * (1 + 0x1p-50) + magnitude(near.w) * 0x1p-52;
  const bool differ =
      float_bits(grid1(near.w - d, bits)) != float_bits(grid1(near.w + d, bits));
  const bool finite = d <= 0x1p1000;
  return {grid1(near.w, bits), differ || !finite};
}

// The position of an element in the output, row-major.
TS_INLINE int64_t position_of(const Decision& p, const Element& e) {
  const int64_t image = quotient_of_any(e.c, p.plane), place = e.c - image * p.plane;
  return ((image * p.batches + e.g) * p.rows + e.i) * p.plane + place;
}
// 13.3: what follows R in an addmm whose alpha or beta is not 1.
TS_INLINE void put_value(const Decision& p, const Element& e, float d) {
  if (p.scales) d = d * p.alpha.value;
  if (p.adds) {
    const float c = last_of(p, e);
    d = d + (p.scales_last ? c * p.beta.value : c);
  }
  if (has_fault(Fault::one_bit)) d = bits_float(float_bits(d) ^ 1);
  put1(p.out + position_of(p, e), d);
}

// --- sums ----------------------------------------------------------------------------------------
// Element i of line l lies as FoldParams says. A part's state goes to [state][q][l].
struct SumParams {
  FoldParams at;
  double* states;  // sum, low, size
  F64 divisor;     // of a mean, as binary32
  int64_t divides, bits;
};
TS_INLINE double term_at(const SumParams& p, int64_t base, int64_t i) {
  return static_cast<double>(floats(p.at.x)[base + offset_of(p.at, i)]);
}
// The parts of line l together.
TS_INLINE Running running_of(const SumParams& p, int64_t l) {
  const int64_t size = p.at.pieces * p.at.outputs;
  Running r = {p.states[l], p.states[size + l], p.states[2 * size + l]};
  for (int64_t q = 1; q < p.at.pieces; ++q) {
    const int64_t at = q * p.at.outputs + l;
    r.merge(p.states[at], p.states[size + at], p.states[2 * size + at]);
  }
  return r;
}
TS_INLINE void put_sum(const SumParams& p, int64_t l, float r) {
  if (p.divides) r = r / static_cast<float>(p.divisor.value);
  put1(static_cast<float*>(p.at.out) + l, r);
}

}  // namespace tallystick::TS_ISA
