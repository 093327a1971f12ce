// Python's door to the rounding of `rounded/1` and `replay/1` (NUMERICS 13, 14). Shapes, positions
// and bits are checked here because kernels trust them. Results are exact, so they do not depend on
// the thread that computes an element, or on the share of elements that the fast pass decides.
#include <algorithm>
#include <memory>
#include <vector>

#include "arrays.hpp"
#include "exact_jobs.hpp"
#include "families/rounding.hpp"

namespace tallystick {
namespace {

using arrays::count;
using arrays::require;
using arrays::require_disjoint;
template <class T, size_t D>
using Array = nb::ndarray<const T, nb::ndim<D>, nb::c_contig, nb::device::cpu>;
using Doubles = nb::ndarray<const double, nb::c_contig, nb::device::cpu>;
using Plane = nb::ndarray<const float, nb::ndim<2>, nb::device::cpu>;  // any strides
using Positions = Array<int64_t, 1>;
using MaybeTerms = std::optional<Array<float, 1>>;

constexpr size_t kGrain = 16384;
constexpr size_t kPiece = 4096;  // elements of one call of `doubt`

template <class T>
nb::object owned(std::unique_ptr<T[]> data, std::initializer_list<size_t> shape) {
  T* p = data.release();
  nb::capsule owner(p, [](void* q) noexcept { delete[] static_cast<T*>(q); });
  return nb::cast(nb::ndarray<nb::numpy, T>(p, shape, owner));
}
template <class T>
std::unique_ptr<T[]> room(size_t n) {
  return std::unique_ptr<T[]>(new T[n + 1]());
}

void require_bits(int b) { require(b >= 20 && b <= 32, "b must be 20 to 32 (NUMERICS 13.1)"); }

View view_of(const Plane& a, size_t x_axis) {
  return {a.data(), a.shape(x_axis), static_cast<ptrdiff_t>(a.stride(x_axis)),
          static_cast<ptrdiff_t>(a.stride(1 - x_axis))};
}

void require_positions(const Positions& p, size_t limit) {
  bool ok = true;
  for (size_t e = 0; e < p.shape(0); ++e) ok &= static_cast<uint64_t>(p.data()[e]) < limit;
  require(ok, "a position is out of range");
}

void round_grid(Doubles w, arrays::Out out, int b) {
  require_bits(b);
  require(w.ndim() == out.ndim(), "w and out must have equal shapes");
  for (size_t d = 0; d < w.ndim(); ++d)
    require(w.shape(d) == out.shape(d), "w and out must have equal shapes");
  require_disjoint({out}, {w});
  const auto fn = TS_DISPATCH(rounding).grid;
  unlocked_ranges(count(w), kGrain, [&](size_t from, size_t to) {
    fn(w.data() + from, to - from, b, out.data() + from);
  });
}

void widen_rows(Plane x, nb::ndarray<double, nb::ndim<2>, nb::c_contig, nb::device::cpu> out) {
  const size_t rows = x.shape(0), n = x.shape(1);
  require(out.shape(0) == rows && out.shape(1) == n, "x and out must have equal shapes");
  require(n <= 1 || x.stride(1) == 1, "the elements of a row must be adjacent");
  const float* in = x.data();
  const ptrdiff_t step = static_cast<ptrdiff_t>(x.stride(0));
  double* result = out.data();
  if (rows * n == 0) return;
  unlocked_ranges(rows * n, kGrain, [&](size_t from, size_t to) {
    for (size_t at = from; at < to;) {
      const size_t row = at / n, col = at % n, end = std::min(to, (row + 1) * n);
      const float* source = in + static_cast<ptrdiff_t>(row) * step + col;
      for (size_t i = 0; i < end - at; ++i) result[at + i] = static_cast<double>(source[i]);
      at = end;
    }
  });
}

nb::object round_doubt(Array<double, 2> w, Array<double, 1> ea, Array<double, 1> eb,
                       std::optional<Array<double, 1>> ec, double t, int b,
                       nb::ndarray<float, nb::ndim<2>, nb::c_contig, nb::device::cpu> out) {
  require_bits(b);
  const size_t m = w.shape(0), n = w.shape(1);
  require(out.shape(0) == m && out.shape(1) == n, "w and out must have equal shapes");
  require(ea.shape(0) == m && eb.shape(0) == n && (!ec || ec->shape(0) == n),
          "ea must have an element per row of w, eb and ec one per column");
  require(t >= 0, "t must be a number, 0 or more");
  require_disjoint({out}, {w});
  const auto fn = TS_DISPATCH(rounding).doubt;
  const double *in = w.data(), *pa = ea.data(), *pb = eb.data(), *pc = ec ? ec->data() : nullptr;
  float* result = out.data();
  const size_t all = m * n;
  const size_t parts =
      std::min((all + kGrain - 1) / kGrain, 8 * static_cast<size_t>(thread_count()));
  std::vector<std::vector<int64_t>> found(parts);
  size_t total = 0;
  std::unique_ptr<int64_t[]> positions;
  {
    nb::gil_scoped_release unlocked;
    parallel_ranges(parts, 1, [&](size_t first, size_t last) {
      uint32_t some[kPiece];
      for (size_t p = first; p < last; ++p) {
        const size_t end = all * (p + 1) / parts;
        for (size_t at = all * p / parts; at < end;) {
          const size_t row = at / n, col = at % n;
          const size_t piece = std::min({kPiece, n - col, end - at});
          const size_t k = fn(in + at, pa[row], pb + col, pc ? pc + col : nullptr, t, piece, b,
                              result + at, some);
          for (size_t i = 0; i < k; ++i) found[p].push_back(static_cast<int64_t>(at + some[i]));
          at += piece;
        }
      }
    });
    for (const auto& part : found) total += part.size();
    positions = room<int64_t>(total);
    int64_t* to = positions.get();
    for (const auto& part : found) to = std::copy(part.begin(), part.end(), to);
  }
  return owned(std::move(positions), {total});
}

ExactJob dots_of(const Plane& a, const Plane& b, const Positions& i, const Positions& j,
                 const MaybeTerms& c) {
  require(a.shape(1) == b.shape(0), "a must have as many columns as b has rows");
  require(i.shape(0) == j.shape(0) && (!c || c->shape(0) == i.shape(0)),
          "i, j and c must have equal lengths");
  require_positions(i, a.shape(0));
  require_positions(j, b.shape(1));
  ExactJob job;
  job.a = view_of(a, 0);
  job.b = view_of(b, 1);
  job.i = i.data();
  job.j = j.data();
  job.c = c ? c->data() : nullptr;
  job.n = i.shape(0);
  job.terms = a.shape(1);
  return job;
}

ExactJob sums_of(const Plane& x, const Positions& rows) {
  require_positions(rows, x.shape(0));
  ExactJob job;
  job.a = view_of(x, 0);
  job.i = rows.data();
  job.n = rows.shape(0);
  job.terms = x.shape(1);
  return job;
}

nb::object rounded(const ExactJob& job, int b) {
  require_bits(b);
  auto out = room<float>(job.n);
  {
    nb::gil_scoped_release unlocked;
    exact_values(job, b, out.get());
  }
  return owned(std::move(out), {job.n});
}

nb::object records(const ExactJob& job) {
  auto out = room<uint8_t>(job.n * kAccBytes);
  {
    nb::gil_scoped_release unlocked;
    exact_records(job, out.get());
  }
  return owned(std::move(out), {job.n, kAccBytes});
}

nb::object exact_dots(Plane a, Plane b, Positions i, Positions j, MaybeTerms c, int bits) {
  return rounded(dots_of(a, b, i, j, c), bits);
}
nb::object exact_accs(Plane a, Plane b, Positions i, Positions j, MaybeTerms c) {
  return records(dots_of(a, b, i, j, c));
}
nb::object exact_sums(Plane x, Positions rows, int b) { return rounded(sums_of(x, rows), b); }
nb::object exact_sum_accs(Plane x, Positions rows) { return records(sums_of(x, rows)); }

template <class F>
nb::object continued(const Array<uint8_t, 1>& record, const F& add) {
  require(record.shape(0) == kAccBytes, "an accumulator record has 80 bytes (NUMERICS 13.5)");
  const RoundingTable& table = TS_DISPATCH(rounding);
  ExactAcc acc;
  table.acc_load(record.data(), acc);
  add(table, acc);
  auto out = room<uint8_t>(kAccBytes);
  table.acc_store(acc, out.get());
  return owned(std::move(out), {kAccBytes});
}

nb::object acc_add_products(Array<uint8_t, 1> acc, Array<float, 1> a, Array<float, 1> b) {
  require(a.shape(0) == b.shape(0), "a and b must have equal lengths");
  return continued(acc, [&](const RoundingTable& table, ExactAcc& s) {
    table.acc_products(s, a.data(), b.data(), a.shape(0));
  });
}

nb::object acc_add_terms(Array<uint8_t, 1> acc, Array<float, 1> x) {
  return continued(acc, [&](const RoundingTable& table, ExactAcc& s) {
    table.acc_terms(s, x.data(), x.shape(0));
  });
}

nb::object acc_round(Array<uint8_t, 2> accs, int b) {
  require_bits(b);
  require(accs.shape(1) == kAccBytes, "an accumulator record has 80 bytes (NUMERICS 13.5)");
  const size_t n = accs.shape(0);
  auto out = room<float>(n);
  const RoundingTable& table = TS_DISPATCH(rounding);
  for (size_t i = 0; i < n; ++i) {
    ExactAcc acc;
    table.acc_load(accs.data() + i * kAccBytes, acc);
    out[i] = table.acc_round(acc, b);
  }
  return owned(std::move(out), {n});
}

// SUM64 along one axis of x for each place of the other.
nb::object sums64(const Plane& x, size_t kept_axis, Sum64 what) {
  const size_t n = x.shape(1 - kept_axis), outputs = x.shape(kept_axis);
  auto out = room<double>(outputs);
  {
    nb::gil_scoped_release unlocked;
    sums64_of(view_of(x, kept_axis), n, what, out.get());
  }
  return owned(std::move(out), {outputs});
}

nb::object square_sums_rows(Plane a) { return sums64(a, 0, Sum64::squares); }
nb::object square_sums_columns(Plane b) { return sums64(b, 1, Sum64::squares); }
nb::object abs_sums_rows(Plane x) { return sums64(x, 0, Sum64::sizes); }

}  // namespace
}  // namespace tallystick

void bind_rounding(nb::module_& m) {
  using namespace tallystick;
  define(m, "round_grid", &round_grid, as_is("w"), as_is("out"), "b"_a,
         "out f32 = R(w f64) with b bits, equal shapes, C-contiguous (NUMERICS 13.2).");
  define(m, "widen_rows", &widen_rows, as_is("x"), as_is("out"),
         "out f64 = x f32[R,n], a row's elements adjacent, in binary64 (exact).");
  define(m, "round_doubt", &round_doubt, as_is("w"), as_is("ea"), as_is("eb"), as_is("ec").none(),
         "t"_a, "b"_a, as_is("out"),
         "out[M,N] = R(w[M,N]); returns i64[k], ascending: the row-major positions where R differs "
         "between w - t·E and w + t·E, E = ea[i]·eb[j] (+ ec[j]), or w or E is not finite. The ends "
         "are taken a step further out than binary64 rounds them (NUMERICS 13.6, 14.6).");
  define(m, "exact_dots", &exact_dots, as_is("a"), as_is("b"), "i"_a, "j"_a, or_none("c"), "bits"_a,
         "f32[n]: R of the exact product of row i[e] of a[M,K] and column j[e] of b[K,N], plus c[e] "
         "(NUMERICS 13.3, 13.4). Any strides.");
  define(m, "exact_accs", &exact_accs, as_is("a"), as_is("b"), "i"_a, "j"_a, or_none("c"),
         "u8[n,80]: the accumulator records of the same sums (NUMERICS 13.5).");
  define(m, "exact_sums", &exact_sums, as_is("x"), "rows"_a, "b"_a,
         "f32[k]: R of the exact sum of the named rows of x[R,n], any strides (NUMERICS 13.3).");
  define(m, "exact_sum_accs", &exact_sum_accs, as_is("x"), "rows"_a,
         "u8[k,80]: the accumulator records of the same sums (NUMERICS 13.5).");
  define(m, "acc_add_products", &acc_add_products, "acc"_a, "a"_a, "b"_a,
         "The record u8[80] after the terms a[k]·b[k] (NUMERICS 13.5).");
  define(m, "acc_add_terms", &acc_add_terms, "acc"_a, "x"_a,
         "The record u8[80] after the terms x[k] (NUMERICS 13.5).");
  define(m, "acc_round", &acc_round, "accs"_a, "b"_a,
         "f32[n]: R of each of the records u8[n,80] (NUMERICS 13.2, 13.4).");
  define(m, "square_sums_rows", &square_sums_rows, as_is("a"),
         "f64[M]: SUM64 of the squares of each row of a[M,K], any strides (NUMERICS 14.4).");
  define(m, "square_sums_columns", &square_sums_columns, as_is("b"),
         "f64[N]: SUM64 of the squares of each column of b[K,N], any strides (NUMERICS 14.4).");
  define(m, "abs_sums_rows", &abs_sums_rows, as_is("x"),
         "f64[R]: SUM64 of the absolute values of each row of x[R,n], any strides (NUMERICS 14.4).");
}
