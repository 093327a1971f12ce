// Vector calls of the elementwise, elementary, reduction and random tables (NUMERICS 3, 5, 8, 10).
#pragma once
#include <cmath>

#include "families/elementary.hpp"
#include "families/elementwise.hpp"
#include "families/random.hpp"
#include "families/reduce.hpp"
#include "vector_file.hpp"

namespace vectors {
using namespace tallystick;
using Bytes = std::vector<uint64_t>;

inline size_t find_ew(const std::string& name) {
  for (size_t i = 0; i < kEwOps; ++i)
    if (name == kEwInfo[i].name) return i;
  fail("no elementwise kernel " + name);
}

// t, broadcast to `shape` as numpy does (10.1).
template <class T>
Bytes spread(const Tensor& t, const std::vector<size_t>& shape) {
  size_t total = 1;
  for (size_t n : shape) total *= n;
  Bytes room(total * sizeof(T) / 8 + 1);
  T* out = reinterpret_cast<T*>(room.data());
  const size_t lead = shape.size() - t.shape.size();
  for (size_t e = 0; e < total; ++e) {
    size_t rest = e, from = 0, step = 1;
    for (size_t d = shape.size(); d-- > 0;) {
      const size_t at = rest % shape[d];
      rest /= shape[d];
      if (d < lead) continue;
      if (t.shape[d - lead] != 1) from += at * step;
      step *= t.shape[d - lead];
    }
    out[e] = t.as<T>()[from];
  }
  return room;
}

inline Tensor scalar(double value) {
  Tensor t;
  t.present = true;
  t.dtype = "f32";
  t.reserve();
  *t.as<float>() = static_cast<float>(value);
  return t;
}

// One elementwise kernel; operands of one element have stride 0, others are spread out.
inline void ew(const char* name, const std::vector<const Tensor*>& in, Tensor& out, double p0 = 0,
               double p1 = 0) {
  const size_t n = out.numel();
  if (n == 0) return;
  std::vector<Bytes> rooms;
  EwOperand operand[kEwArity] = {};
  for (size_t k = 0; k < in.size(); ++k) {
    const bool one = in[k]->numel() == 1;
    const bool mask = in[k]->dtype == "bool";
    if (!one)
      rooms.push_back(mask ? spread<uint8_t>(*in[k], out.shape) : spread<uint32_t>(*in[k], out.shape));
    else rooms.push_back(in[k]->room);
    operand[k].stride = one && n != 1 ? 0 : 1;
  }
  for (size_t k = 0; k < in.size(); ++k) operand[k].data = rooms[k].data();
  const float param[2] = {static_cast<float>(p0), static_cast<float>(p1)};
  TS_DISPATCH(elementwise).fn[find_ew(name)](operand, out.as<void>(), n, param);
}

inline void ew_call(Case& c, const char* kernel, double p0 = 0, double p1 = 0) {
  std::vector<const Tensor*> in;
  for (const Tensor& t : c.in) in.push_back(&t);
  return ew(kernel, in, c.got[0], p0, p1);
}

// Two operands, the second a tensor or `other`.
inline void ew_pair(Case& c, const char* kernel, double p0 = 0) {
  if (c.in.size() == 2) return ew(kernel, {&c.in[0], &c.in[1]}, c.got[0], p0);
  const Tensor other = scalar(c.f("other"));
  return ew(kernel, {&c.in[0], &other}, c.got[0], p0);
}

inline void run_sum_pair(Case& c, const char* plain, const char* scaled) {
  const double alpha = c.f("alpha");
  return ew_pair(c, alpha == 1.0 ? plain : scaled, alpha);
}

inline void run_clamp(Case& c) {
  const bool low = c.attrs.has("min"), high = c.attrs.has("max");
  return ew_call(c, low && high ? "clamp_min_max" : low ? "clamp_min" : "clamp_max",
                 low ? c.f("min") : c.f("max"), low && high ? c.f("max") : 0.0);
}

inline void run_pow(Case& c) {
  const double e = c.f("exponent");
  const Tensor& x = c.in[0];
  const char* kernel = e == 1.0 ? "pow_1" : e == 2.0 ? "square" : e == 3.0 ? "pow_3"
                       : e == 0.5 ? "sqrt" : e == -1.0 ? "reciprocal" : nullptr;
  if (kernel) return ew_call(c, kernel);
  if (e == -0.5) {
    TS_DISPATCH(elementary).rsqrt(x.f32(), c.got[0].f32(), x.numel());
    return;
  }
  const float y = static_cast<float>(e);
  TS_DISPATCH(elementary).pow(x.f32(), &y, 0, c.got[0].f32(), x.numel());
}

inline void run_unary(Case& c, UnaryFn ElementaryTable::*fn) {
  (TS_DISPATCH(elementary).*fn)(c.in[0].f32(), c.got[0].f32(), c.in[0].numel());
}

inline void run_masked_fill(Case& c) {
  const Tensor value = scalar(c.f("value"));
  return ew("where", {&c.in[1], &value, &c.in[0]}, c.got[0]);
}

inline void run_mse(Case& c) {
  const std::string& reduction = c.s("reduction");
  if (reduction == "none") return ew_call(c, "mse_loss");
  Tensor squares = c.in[0];
  ew("mse_loss", {&c.in[0], &c.in[1]}, squares);
  const float count = static_cast<float>(squares.numel());
  *c.got[0].f32() = TS_DISPATCH(reduce).row(squares.f32(), squares.numel(), Term::value,
                                            reduction == "mean" ? &count : nullptr);
}

// --- reductions ------------------------------------------------------------------------------------
struct Rows {
  std::vector<float> x;  // [outer][n][inner]
  size_t outer = 1, n = 1, inner = 1;
};

// The reduced axes as the middle index where they are neighbours; otherwise, or with `plain`, as
// rows.
inline Rows rows_of(const Case& c, bool plain) {
  const Tensor& t = c.in[0];
  const size_t rank = t.shape.size();
  std::vector<bool> reduced(rank, true);
  if (c.attrs.has("dim") && rank) {
    const Json& dim = c.attrs.at("dim");
    std::vector<int64_t> dims = dim.kind == Json::list ? c.list("dim") : std::vector<int64_t>{dim.i};
    if (!dims.empty()) reduced.assign(rank, false);
    for (int64_t d : dims) reduced[static_cast<size_t>(d < 0 ? d + static_cast<int64_t>(rank) : d)] = true;
  }
  Rows r;
  std::vector<size_t> order;
  size_t changes = 0;
  for (size_t d = 0; d < rank; ++d) changes += d && reduced[d] != reduced[d - 1];
  const bool blocks = !plain && (changes <= 1 || (changes == 2 && !reduced[0]));
  if (blocks) {
    bool seen = false;
    for (size_t d = 0; d < rank; ++d) {
      seen = seen || reduced[d];
      (reduced[d] ? r.n : seen ? r.inner : r.outer) *= t.shape[d];
      order.push_back(d);
    }
  } else {
    for (size_t d = 0; d < rank; ++d)
      if (!reduced[d]) order.push_back(d), r.outer *= t.shape[d];
    for (size_t d = 0; d < rank; ++d)
      if (reduced[d]) order.push_back(d), r.n *= t.shape[d];
  }
  std::vector<size_t> step(rank, 1);
  for (size_t d = rank; d-- > 1;) step[d - 1] = step[d] * t.shape[d];
  r.x.resize(t.numel() + 1);
  for (size_t e = 0; e < t.numel(); ++e) {
    size_t rest = e, from = 0;
    for (size_t k = rank; k-- > 0;) {
      from += rest % t.shape[order[k]] * step[order[k]];
      rest /= t.shape[order[k]];
    }
    r.x[e] = t.f32()[from];
  }
  return r;
}

// of_row(x) for every row, or of_columns(x, first column, columns, out) for tiles of columns.
template <class F, class G>
void reduce_rows(const Rows& r, float* out, const F& of_row, const G& of_columns) {
  for (size_t o = 0; o < r.outer; ++o) {
    const float* x = r.x.data() + o * r.n * r.inner;
    if (r.inner == 1) {
      out[o] = of_row(x);
      continue;
    }
    for (size_t col = 0; col < r.inner; col += kReduceColumns) {
      const size_t cols = r.inner - col < kReduceColumns ? r.inner - col : kReduceColumns;
      of_columns(x, col, cols, out + o * r.inner + col);
    }
  }
}

inline void run_sum(Case& c, bool mean) {
  const ReduceTable& table = TS_DISPATCH(reduce);
  const Rows r = rows_of(c, false);
  const float count = static_cast<float>(r.n);
  const float* divisor = mean ? &count : nullptr;
  std::vector<float> scratch(table.column_scratch(r.n) + 1);
  return reduce_rows(
      r, c.got[0].f32(),
      [&](const float* x) { return table.row(x, r.n, Term::value, divisor); },
      [&](const float* x, size_t col, size_t cols, float* out) {
        table.columns(x, r.n, r.inner, col, cols, divisor, out, scratch.data());
      });
}

inline void run_extreme(Case& c, Extreme which) {
  const ReduceTable& table = TS_DISPATCH(reduce);
  const Rows r = rows_of(c, false);
  return reduce_rows(
      r, c.got[0].f32(), [&](const float* x) { return table.row_extreme(x, r.n, which); },
      [&](const float* x, size_t col, size_t cols, float* out) {
        table.column_extreme(x, r.n, r.inner, col, cols, which, out);
      });
}

inline void run_argmax(Case& c) {
  const Rows r = rows_of(c, true);
  for (size_t o = 0; o < r.outer; ++o)
    c.got[0].as<int64_t>()[o] = TS_DISPATCH(reduce).row_argmax(r.x.data() + o * r.n, r.n);
}

inline void run_var_mean(Case& c) {
  const ReduceTable& table = TS_DISPATCH(reduce);
  const Rows r = rows_of(c, true);
  const double rest = static_cast<double>(r.n) - c.f("correction");
  for (size_t o = 0; o < r.outer; ++o)
    table.var_mean(r.x.data() + o * r.n, r.n, rest > 0 ? rest : 0.0, c.got[0].f32() + o,
                   c.got[1].f32() + o);
}

inline void run_sum_squares(Case& c) {
  *c.got[0].f32() =
      TS_DISPATCH(reduce).row(c.in[0].f32(), c.in[0].numel(), Term::square, nullptr);
}

// --- random ----------------------------------------------------------------------------------------
inline RandomKey key_of(const Case& c) {
  const int64_t* rng = c.in[0].as<int64_t>();
  return {static_cast<uint64_t>(rng[0]), static_cast<uint32_t>(c.i("draw")),
          static_cast<uint32_t>(rng[1])};
}
inline void run_dropout(Case& c) {
  const auto threshold = static_cast<uint64_t>(std::nearbyint(c.f("p") * 4294967296.0));
  TS_DISPATCH(random).dropout_mask(key_of(c), threshold, 0, c.got[0].numel(), c.got[0].as<uint8_t>());
}
inline void run_uniform(Case& c) {
  TS_DISPATCH(random).uniform(key_of(c), static_cast<float>(c.f("low")),
                              static_cast<float>(c.f("high")), 0, c.got[0].numel(), c.got[0].f32());
}
inline void run_normal(Case& c) {
  TS_DISPATCH(random).normal(key_of(c), static_cast<float>(c.f("mean")),
                             static_cast<float>(c.f("std")), 0, c.got[0].numel(), c.got[0].f32());
}
inline void run_gumbel(Case& c) {
  const size_t rows = c.in.at(1).numel(), classes = static_cast<size_t>(c.i("classes"));
  const uint64_t each = (classes + 3) / 4;
  for (size_t r = 0; r < rows; ++r)
    TS_DISPATCH(random).gumbel(key_of(c), static_cast<uint64_t>(c.in[1].as<int64_t>()[r]) * each, classes,
                               c.got[0].f32() + r * classes);
}

}  // namespace vectors
