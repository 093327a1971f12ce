#include "families/reduce.hpp"

#include "tallystick/reduce.hpp"
#include "tallystick/reduce_f64.hpp"

namespace tallystick {
namespace TS_ISA {
namespace {

static_assert(kColTile == kReduceColumns, "bindings cut columns by this");

struct Value {
  const float* x;
  TS_INLINE f32v operator()(size_t i, size_t n) const { return v_load_any(x + i, n); }
};
struct Square {
  const float* x;
  TS_INLINE f32v operator()(size_t i, size_t n) const {
    const f32v v = v_load_any(x + i, n);
    return v_mul(v, v);
  }
};

float row(const float* x, size_t n, Term term, const float* divisor) {
  float s = term == Term::value ? sum_of(n, Value{x}) : sum_of(n, Square{x});
  if (divisor) s = s / *divisor;
  return canonical_nan(planted(s));
}

template <class F>
void blocks_of(const F& f, size_t n, size_t first, size_t last, float* out) {
  for (size_t b = first; b < last; ++b)
    out[b - first] = sum_block(b * kSumBlock, ts_min(kSumBlock, n - b * kSumBlock), f);
}

void row_blocks(const float* x, size_t n, Term term, size_t first, size_t last, float* out) {
  if (term == Term::value) blocks_of(Value{x}, n, first, last, out);
  else blocks_of(Square{x}, n, first, last, out);
}

void finish(float* out, size_t cols, const float* divisor) {
  for (size_t j = 0; j < cols; ++j) put1(out + j, divisor ? out[j] / *divisor : out[j]);
}

void columns(const float* x, size_t n, size_t inner, size_t col, size_t cols, const float* divisor,
             float* out, float* scratch) {
  sum_columns(n, col, cols, out, scratch, [=](size_t i, size_t j, size_t m) TS_LAMBDA {
    return v_load_any(x + i * inner + j, m);
  });
  finish(out, cols, divisor);
}

size_t scratch_floats(size_t n) { return column_scratch(n); }

float row_extreme(const float* x, size_t n, Extreme which) {
  const float r = which == Extreme::max ? max_row(x, n) : min_row(x, n);
  return canonical_nan(planted(r));
}

template <Extreme kWhich>
void column_extreme_of(const float* x, size_t n, size_t inner, size_t cols, float* out) {
  f32v best[kColTile / kF32Lanes];
  const size_t regs = ceil_div(cols, kF32Lanes), last = cols - (regs - 1) * kF32Lanes;
  for (size_t i = 0; i < n; ++i, x += inner) {
    size_t r = 0;
    for (; r + 1 < regs; ++r) {
      const f32v v = v_load(x + r * kF32Lanes);
      best[r] = i == 0 ? v : kWhich == Extreme::max ? v_max(best[r], v) : v_min(best[r], v);
    }
    const f32v v = v_load_any(x + r * kF32Lanes, last);
    best[r] = i == 0 ? v : kWhich == Extreme::max ? v_max(best[r], v) : v_min(best[r], v);
  }
  for (size_t r = 0; r < regs; ++r)
    v_store_any(out + r * kF32Lanes, v_canon(v_planted(best[r])), r + 1 < regs ? kF32Lanes : last);
}

void column_extreme(const float* x, size_t n, size_t inner, size_t col, size_t cols, Extreme which,
                    float* out) {
  if (which == Extreme::max) column_extreme_of<Extreme::max>(x + col, n, inner, cols, out);
  else column_extreme_of<Extreme::min>(x + col, n, inner, cols, out);
}

// The maximum first, then its first place: -0 equals +0 here, and any NaN is the maximum (3.5).
int64_t row_argmax(const float* x, size_t n) {
  const float best = max_row(x, n);
  const f32v target = v_set1(best);
  const bool nan = best != best;
  size_t i = 0;
  for (; i + kF32Lanes <= n; i += kF32Lanes) {
    const f32v v = v_load(x + i);
    if (m_any(nan ? v_isnan(v) : v_eq(v, target))) break;
  }
  while (i + 1 < n && !(nan ? x[i] != x[i] : x[i] == best)) ++i;
#ifdef TALLYSTICK_FAULT
  return static_cast<int64_t>(i ^ 1);
#else
  return static_cast<int64_t>(i);
#endif
}

void var_mean(const float* x, size_t n, double divisor, float* var, float* mean) {
  const double m = sum64_of(n, [=](size_t i) TS_LAMBDA { return static_cast<double>(x[i]); }) /
                   static_cast<double>(n);
  const double v = sum64_of(n, [=](size_t i) TS_LAMBDA {
    const double d = static_cast<double>(x[i]) - m;
    return d * d;
  }) / divisor;
  put1(var, static_cast<float>(v));
  put1(mean, static_cast<float>(m));
}

}  // namespace
}  // namespace TS_ISA

namespace isa = TS_ISA;
TS_DEFINE_TABLE(ReduceTable, reduce) = {
    isa::row, isa::row_blocks, isa::columns, isa::scratch_floats, isa::row_extreme,
    isa::column_extreme, isa::row_argmax, isa::var_mean};

}  // namespace tallystick
