#include "families/rounding.hpp"

#include "tallystick/exact_acc.hpp"
#include "tallystick/exact_dot.hpp"
#include "tallystick/grid.hpp"
#include "tallystick/sum64_columns.hpp"

namespace tallystick {
namespace TS_ISA {
namespace {

void grid(const double* w, size_t n, int b, float* out) {
  const GridRounder round(b);
  size_t i = 0;
  for (; i + kF64Lanes <= n; i += kF64Lanes)
    d_store_f32(out + i, d_canonical(round(d_load(w + i))));
  for (; i < n; ++i) out[i] = grid1(w[i], b);
  for (i = 0; i < n; ++i) out[i] = planted(out[i]);
}

struct Doubt {
  const double* w;
  double ea;
  const double *eb, *ec;
  double t;
};

// The lanes in doubt, one bit each; r: R(w).
//
// The ends are w ∓ d with d = t·E·(1 + 2^-50) + |w|·2^-52, rounded. e is t·E·(1 + 2^-50) except for
// four errors of at most 2^-53 relatively; d and each end have one such error each. The added
// amount pays for them, so the computed ends lie outside the real ones. Where w is infinite, d is
// infinite and one end is NaN: in doubt, as where E is not finite.
template <bool kFull>
TS_INLINE unsigned doubt_of(const GridRounder& round, f64v w, f64v e, f64v& r) {
  const f64v size = d_and(w, d_set1_bits(0x7fffffffffffffffu));
  const f64v d = d_fma(size, d_set1(0x1p-52), e);
  const f64v low = d_sub(w, d), high = d_add(w, d);
  r = kFull ? w : round(w);
  return kFull ? d_differ_f32(low, high) : d_differ_f32(round(low), round(high));
}

template <bool kFull, bool kLast>
TS_INLINE size_t doubt_row(const Doubt& x, size_t n, int b, float* out, uint32_t* found) {
  const GridRounder round(b);
  const double t = x.t * (1 + 0x1p-50), ea = x.ea * t;
  const f64v va = d_set1(ea), vt = d_set1(t);
  size_t count = 0, i = 0;
  const auto put = [&](unsigned bits) TS_LAMBDA {
    for (; bits; bits &= bits - 1) {
      const size_t at = i + static_cast<size_t>(__builtin_ctz(bits));
      out[at] = canonical_nan(out[at]);  // a NaN is always in doubt
      found[count++] = static_cast<uint32_t>(at);
    }
  };
  f64v r;
  for (; i + kF64Lanes <= n; i += kF64Lanes) {
    f64v e = d_mul(va, d_load(x.eb + i));
    if (kLast) e = d_fma(vt, d_load(x.ec + i), e);
    const unsigned bits = doubt_of<kFull>(round, d_load(x.w + i), e, r);
    d_store_f32(out + i, r);
    if (__builtin_expect(bits != 0, 0)) put(bits);
  }
  if (i < n) {
    double last[2][kF64Lanes] = {};
    float results[kF64Lanes];
    for (size_t l = 0; i + l < n; ++l) {
      last[0][l] = x.w[i + l];
      last[1][l] = ea * x.eb[i + l];
      if (kLast) last[1][l] = fma1(t, x.ec[i + l], last[1][l]);
    }
    const unsigned bits = doubt_of<kFull>(round, d_load(last[0]), d_load(last[1]), r);
    d_store_f32(results, r);
    for (size_t l = 0; i + l < n; ++l) out[i + l] = results[l];
    put(bits & ((1u << (n - i)) - 1));
  }
  return count;
}

size_t doubt(const double* w, double ea, const double* eb, const double* ec, double t, size_t n, int b,
             float* out, uint32_t* found) {
  const Doubt x = {w, ea, eb, ec, t};
  const size_t count = b == 32 ? (ec ? doubt_row<true, true>(x, n, b, out, found)
                                     : doubt_row<true, false>(x, n, b, out, found))
                               : (ec ? doubt_row<false, true>(x, n, b, out, found)
                                     : doubt_row<false, false>(x, n, b, out, found));
#ifdef TALLYSTICK_FAULT
  for (size_t i = 0; i < n; ++i) out[i] = planted(out[i]);
#endif
  return count;
}

void dot_products(DotState& state, const float* a, const float* b, size_t n) {
  dot_terms(
      state, n,
      [=](size_t k) TS_LAMBDA { return d_mul(d_load_f32(a + k), d_load_f32(b + k)); },
      [=](size_t k) TS_LAMBDA { return static_cast<double>(a[k]) * static_cast<double>(b[k]); });
}

void dot_sums(DotState& state, const float* x, size_t n) {
  dot_terms(
      state, n, [=](size_t k) TS_LAMBDA { return d_load_f32(x + k); },
      [=](size_t k) TS_LAMBDA { return static_cast<double>(x[k]); });
}

bool decide(const DotState& state, int b, float* out) {
  const bool decided = dot_decide(state, b, out);
  if (decided) *out = planted(*out);
  return decided;
}

void products(ExactAcc& acc, const float* a, const float* b, size_t n) {
  acc_add_all(acc, n, [=](size_t k) TS_LAMBDA {
    return static_cast<double>(a[k]) * static_cast<double>(b[k]);
  });
}

void terms(ExactAcc& acc, const float* x, size_t n) {
  acc_add_all(acc, n, [=](size_t k) TS_LAMBDA { return static_cast<double>(x[k]); });
}

float round_acc(const ExactAcc& acc, int b) { return planted(acc_round(acc, b)); }

TS_INLINE double canonical_sum(double s) {
  return s != s ? bits_double(0x7ff8000000000000u) : s;
}

template <bool kSquares>
struct Term64 {
  TS_INLINE double operator()(float x) const {
    const double d = x;
    return kSquares ? d * d : __builtin_fabs(d);
  }
  TS_INLINE f64v operator()(f64v d) const {
    return kSquares ? d_mul(d, d) : d_and(d, d_set1_bits(0x7fffffffffffffffu));
  }
};

// sum64_block over adjacent elements, the lanes in registers.
template <bool kSquares>
TS_INLINE double adjacent_block(const float* x, size_t n) {
  constexpr size_t kRegs = kSumLanes / kF64Lanes;
  const Term64<kSquares> term;
  f64v acc[kRegs];
  for (size_t r = 0; r < kRegs; ++r) acc[r] = d_set1(-0.0);
  size_t i = 0;
  for (; i + kSumLanes <= n; i += kSumLanes)
    for (size_t r = 0; r < kRegs; ++r)
      acc[r] = d_add(acc[r], term(d_load_f32(x + i + r * kF64Lanes)));
  double lane[kSumLanes];
  for (size_t r = 0; r < kRegs; ++r) d_store(lane + r * kF64Lanes, acc[r]);
  for (size_t l = 0; i + l < n; ++l) lane[l] = lane[l] + term(x[i + l]);
  for (size_t s = kSumLanes / 2; s >= 1; s /= 2)
    for (size_t l = 0; l < s; ++l) lane[l] = lane[l] + lane[l + s];
  return lane[0];
}

template <bool kSquares>
double row_of(const float* x, size_t n, ptrdiff_t step) {
  if (step == 1)
    return sum64_of_blocks(n, [=](size_t base, size_t m) TS_LAMBDA {
      return adjacent_block<kSquares>(x + base, m);
    });
  const Term64<kSquares> term;
  return sum64_of(n, [=](size_t i) TS_LAMBDA { return term(x[static_cast<ptrdiff_t>(i) * step]); });
}

double sum64_row(const float* x, size_t n, ptrdiff_t step, Sum64 what) {
  return canonical_sum(what == Sum64::squares ? row_of<true>(x, n, step) : row_of<false>(x, n, step));
}

// The last columns of a row that are no whole register are read one by one.
template <bool kSquares>
TS_INLINE void columns_of(const float* x, size_t n, ptrdiff_t step, size_t cols, double* out,
                          double* scratch) {
  const size_t width = ceil_div(cols, kF64Lanes) * kF64Lanes;
  const Term64<kSquares> term;
  double wide[kSum64Columns] = {};
  sum64_columns_of(n, width, [=](size_t i, size_t j) TS_LAMBDA {
    const float* p = x + static_cast<ptrdiff_t>(i) * step + j;
    f64v v;
    if (j + kF64Lanes <= cols) {
      v = d_load_f32(p);
    } else {
      float some[kF64Lanes] = {};
      for (size_t l = 0; j + l < cols; ++l) some[l] = p[l];
      v = d_load_f32(some);
    }
    return term(v);
  }, wide, scratch);
  for (size_t j = 0; j < cols; ++j) out[j] = canonical_sum(wide[j]);
}

void sum64_columns(const float* x, size_t n, ptrdiff_t step, size_t cols, Sum64 what, double* out,
                   double* scratch) {
  if (what == Sum64::squares) columns_of<true>(x, n, step, cols, out, scratch);
  else columns_of<false>(x, n, step, cols, out, scratch);
}

size_t sum64_scratch(size_t n) { return sum64_columns_scratch(n, kSum64Columns); }

}  // namespace
}  // namespace TS_ISA

namespace isa = TS_ISA;
TS_DEFINE_TABLE(RoundingTable, rounding) = {
    isa::grid,     isa::doubt, isa::dot_products, isa::dot_sums,  isa::decide,   isa::products,
    isa::terms,    isa::round_acc, isa::acc_store, isa::acc_load, isa::sum64_row, isa::sum64_columns,
    isa::sum64_scratch};

}  // namespace tallystick
