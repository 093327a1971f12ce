// Python's door to the reductions. Work is split over outputs or, for a single long row, over its
// 256-element blocks. A block's value does not depend on the thread that computes it (NUMERICS
// 3.1).
#include <nanobind/stl/string.h>

#include <string>
#include <vector>

#include "arrays.hpp"
#include "families/reduce.hpp"
#include "sequence.hpp"

namespace tallystick {
namespace {

using namespace arrays;
constexpr size_t kGrain = 16384;
constexpr size_t kBlock = 256;

size_t grain_for(size_t elements_each) { return kGrain / (elements_each + 1) + 1; }

void check_extent(size_t have, size_t outer, size_t n, size_t inner, size_t outputs) {
  size_t want = 0;
  if (__builtin_mul_overflow(outer, n, &want) || __builtin_mul_overflow(want, inner, &want) ||
      want != have || outputs != outer * inner)
    throw nb::value_error("the input must be [outer][n][inner] and the output [outer][inner]");
}

// SUM of one long row by blocks in parallel.
float long_row(const ReduceTable& table, const float* x, size_t n, Term term,
               const float* divisor, std::vector<float>& values) {
  const size_t blocks = (n + kBlock - 1) / kBlock;
  values.resize(blocks);
  float* out = values.data();
  parallel_ranges(blocks, kGrain / kBlock, [&](size_t b, size_t e) {
    table.row_blocks(x, n, term, b, e, out + b);
  });
  return table.row(out, blocks, Term::value, divisor);
}

bool by_blocks(size_t outer, size_t n) {
  return n >= 4 * kGrain && outer < 2 * static_cast<size_t>(thread_count()) && thread_count() > 1;
}

void sum_rows(const ReduceTable& table, const float* x, size_t outer, size_t n, Term term,
              const float* divisor, float* out) {
  if (by_blocks(outer, n)) {
    std::vector<float> values;
    for (size_t r = 0; r < outer; ++r)
      out[r] = long_row(table, x + r * n, n, term, divisor, values);
    return;
  }
  parallel_ranges(outer, grain_for(n), [&](size_t b, size_t e) {
    for (size_t r = b; r < e; ++r)
      out[r] = table.row(x + r * n, n, term, divisor);
  });
}

void reduce_sum(In x, size_t outer, size_t n, size_t inner, Out out, bool square, bool mean) {
  check_extent(x.size(), outer, n, inner, out.size());
  if (square && inner != 1) throw nb::value_error("sums of squares take rows");
  const float count = static_cast<float>(n);  // RN32(n): one rounding from the integer
  const float* in = x.data();
  float* result = out.data();
  if (inner == 1) {
    const Term term = square ? Term::square : Term::value;
    return perform([=] {
      sum_rows(TS_DISPATCH(reduce), in, outer, n, term, mean ? &count : nullptr, result);
    });
  }
  const ReduceTable& table = TS_DISPATCH(reduce);
  const float* divisor = mean ? &count : nullptr;
  const size_t tiles = (inner + kReduceColumns - 1) / kReduceColumns, jobs = outer * tiles;
  if (jobs == 0) return;
  const size_t threads = static_cast<size_t>(thread_count());
  const size_t lots = jobs < 4 * threads ? jobs : 4 * threads;
  const size_t scratch = table.column_scratch(n);
  std::vector<float> memory(scratch * lots);
  nb::gil_scoped_release unlocked;
  const auto run = [&](size_t lot) {
    for (size_t t = jobs * lot / lots; t < jobs * (lot + 1) / lots; ++t) {
      const size_t o = t / tiles, col = (t % tiles) * kReduceColumns;
      const size_t cols = inner - col < kReduceColumns ? inner - col : kReduceColumns;
      table.columns(in + o * n * inner, n, inner, col, cols, divisor, result + o * inner + col,
                    memory.data() + scratch * lot);
    }
  };
  if (x.size() < kGrain) {
    for (size_t lot = 0; lot < lots; ++lot) run(lot);
  } else {
    parallel_ranges(lots, 1, [&](size_t b, size_t e) {
      for (size_t lot = b; lot < e; ++lot) run(lot);
    });
  }
}

// NUMERICS 3.6 over rows; divisor: max(n - correction, 0).
void var_mean(In x, size_t outer, size_t n, double divisor, Out var, Out mean) {
  check_extent(x.size(), outer, n, 1, var.size());
  if (mean.size() != outer) throw nb::value_error("var and mean must have one element per row");
  const auto fn = TS_DISPATCH(reduce).var_mean;
  unlocked_ranges(outer, grain_for(n), [&](size_t b, size_t e) {
    for (size_t r = b; r < e; ++r)
      fn(x.data() + r * n, n, divisor, var.data() + r, mean.data() + r);
  });
}

Extreme extreme_of(const std::string& which) {
  if (which == "max") return Extreme::max;
  if (which == "min") return Extreme::min;
  throw nb::value_error("the extreme is 'max' or 'min'");
}

void reduce_extreme(const std::string& name, In x, size_t outer, size_t n, size_t inner, Out out) {
  check_extent(x.size(), outer, n, inner, out.size());
  const Extreme which = extreme_of(name);
  if (out.size() == 0) return;
  if (n == 0) throw nb::value_error("an extreme of nothing is not defined (NUMERICS 3.5)");
  const ReduceTable& table = TS_DISPATCH(reduce);
  const float* in = x.data();
  float* result = out.data();
  if (inner == 1 && by_blocks(outer, n)) {
    const size_t parts = 4 * static_cast<size_t>(thread_count());
    std::vector<float> values(parts);
    nb::gil_scoped_release unlocked;
    for (size_t r = 0; r < outer; ++r) {
      const float* row = in + r * n;
      parallel_ranges(parts, 1, [&](size_t b, size_t e) {
        for (size_t p = b; p < e; ++p) {
          const size_t from = n * p / parts, to = n * (p + 1) / parts;
          values[p] = table.row_extreme(row + from, to - from, which);
        }
      });
      result[r] = table.row_extreme(values.data(), parts, which);
    }
    return;
  }
  nb::gil_scoped_release unlocked;
  if (inner == 1) {
    parallel_ranges(outer, grain_for(n), [&](size_t b, size_t e) {
      for (size_t r = b; r < e; ++r) result[r] = table.row_extreme(in + r * n, n, which);
    });
    return;
  }
  const size_t tiles = (inner + kReduceColumns - 1) / kReduceColumns;
  parallel_ranges(outer * tiles, grain_for(n * kReduceColumns), [&](size_t b, size_t e) {
    for (size_t t = b; t < e; ++t) {
      const size_t o = t / tiles, col = (t % tiles) * kReduceColumns;
      const size_t cols = inner - col < kReduceColumns ? inner - col : kReduceColumns;
      table.column_extreme(in + o * n * inner, n, inner, col, cols, which,
                           result + o * inner + col);
    }
  });
}

void reduce_argmax(In x, size_t outer, size_t n, OutIndex out) {
  check_extent(x.size(), outer, n, 1, out.size());
  if (outer != 0 && n == 0) throw nb::value_error("argmax of nothing is not defined (NUMERICS 3.5)");
  const ReduceTable& table = TS_DISPATCH(reduce);
  unlocked_ranges(outer, grain_for(n), [&](size_t b, size_t e) {
    for (size_t r = b; r < e; ++r) out.data()[r] = table.row_argmax(x.data() + r * n, n);
  });
}

}  // namespace
}  // namespace tallystick

void bind_reduce(nb::module_& m) {
  using namespace tallystick;
  define(m, "reduce_sum", &reduce_sum, as_is("x"), "outer"_a, "n"_a, "inner"_a, as_is("out"),
         "square"_a = false, "mean"_a = false,
         "SUM over the middle axis of x seen as [outer][n][inner] (NUMERICS 3.1); `mean` divides by "
         "RN32(n), `square` sums squares (rows only).");
  define(m, "var_mean", &var_mean, as_is("x"), "outer"_a, "n"_a, "divisor"_a, as_is("var"),
         as_is("mean"), "Variance and mean of each row of x seen as [outer][n] (NUMERICS 3.6).");
  define(m, "reduce_extreme", &reduce_extreme, "which"_a, as_is("x"), "outer"_a, "n"_a, "inner"_a,
         as_is("out"),
         "'max' or 'min' over the middle axis of x seen as [outer][n][inner] (NUMERICS 3.5).");
  define(m, "reduce_argmax", &reduce_argmax, as_is("x"), "outer"_a, "n"_a, as_is("out"),
         "Lowest index of the maximum of each row (NUMERICS 3.5).");
}
