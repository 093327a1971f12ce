// Python's door to `exact/1` (NUMERICS 17). Shapes are checked here because kernels trust them.
// Integers and totals have no order, so no result depends on the thread that computes it.
#include <algorithm>
#include <memory>
#include <new>

#include "arrays.hpp"
#include "families/exact.hpp"

namespace tallystick {
namespace {

using arrays::require;
template <size_t D>
using In = nb::ndarray<const float, nb::ndim<D>, nb::device::cpu>;  // any strides
template <class T, size_t D>
using Whole = nb::ndarray<T, nb::ndim<D>, nb::c_contig, nb::device::cpu>;

constexpr size_t kGrain = 16384;
constexpr size_t kStrip = 48;  // rows and columns of digits that one task multiplies

void require_width(int width) {
  require(width == 8 || width == 15 || width == 22, "b must be 8, 15 or 22 (NUMERICS 17.1)");
}

void exact_integers(In<2> x, int64_t segment, int width, Whole<uint32_t, 2> mu,
                    Whole<float, 2> out) {
  require_width(width);
  const size_t rows = x.shape(0), n = x.shape(1);
  require(segment >= 1, "a segment has at least one element");
  const size_t each = static_cast<size_t>(segment), segments = (n + each - 1) / each;
  require(mu.shape(0) == rows && mu.shape(1) == segments && out.shape(0) == rows &&
              out.shape(1) == n,
          "shapes of x, mu and out do not fit");
  const auto& table = TS_DISPATCH(exact);
  const ptrdiff_t row = static_cast<ptrdiff_t>(x.stride(0));
  const ptrdiff_t step = static_cast<ptrdiff_t>(x.stride(1));
  uint32_t* most = mu.data();
  if (rows * segments == 0) return;
  unlocked_ranges(rows * segments, std::max<size_t>(1, kGrain / each), [&](size_t from, size_t end) {
    for (size_t at = from; at < end; ++at) {
      const size_t r = at / segments, k = at % segments * each, count = std::min(each, n - k);
      const float* p = x.data() + static_cast<ptrdiff_t>(r) * row + static_cast<ptrdiff_t>(k) * step;
      most[at] = table.most(p, count, step);
      table.integers(p, count, step, most[at], width, out.data() + r * n + k);
    }
  });
}

void require_product(const In<3>& a, const In<3>& b, const Whole<double, 3>& out) {
  require(a.shape(0) == b.shape(0) && a.shape(2) == b.shape(2) && out.shape(0) == a.shape(0) &&
              out.shape(1) == a.shape(1) && out.shape(2) == b.shape(1),
          "shapes of a, b and out do not fit");
}

void exact_products(In<3> a, In<3> b, int width, Whole<double, 3> out) {
  require_width(width);
  require_product(a, b, out);
  const size_t batch = a.shape(0), m = a.shape(1), n = b.shape(1), k = a.shape(2);
  require(k <= (width == 8 ? 256 : width == 15 ? 1024 : 2048), "a block is too long (NUMERICS 17.1)");
  require(k <= 1 || (a.stride(2) == 1 && b.stride(2) == 1), "the integers of a row must be adjacent");
  double* result = out.data();
  if (batch * m * n == 0) return;
  const auto& table = TS_DISPATCH(exact);
  const int count = width == 8 ? 1 : width == 15 ? 2 : 3;
  const size_t padded = (k + kDigitPad - 1) / kDigitPad * kDigitPad;
  const size_t row = static_cast<size_t>(count) * padded;
  const float *pa = a.data(), *pb = b.data();
  const ptrdiff_t as[2] = {static_cast<ptrdiff_t>(a.stride(0)), static_cast<ptrdiff_t>(a.stride(1))};
  const ptrdiff_t bs[2] = {static_cast<ptrdiff_t>(b.stride(0)), static_cast<ptrdiff_t>(b.stride(1))};
  nb::gil_scoped_release unlocked;
  std::unique_ptr<int16_t[]> room(new int16_t[batch * (m + n) * row + 1]);
  int16_t *da = room.get(), *db = da + batch * m * row;
  const auto split = [&](const float* from, const ptrdiff_t* s, size_t rows, int16_t* to) {
    parallel_ranges(batch * rows, std::max<size_t>(1, kGrain / (k + 1)), [&](size_t x, size_t end) {
      for (; x < end; ++x)
        table.digits(from + static_cast<ptrdiff_t>(x / rows) * s[0] +
                         static_cast<ptrdiff_t>(x % rows) * s[1],
                     k, padded, count, to + x * row);
    });
  };
  split(pa, as, m, da);
  split(pb, bs, n, db);
  const size_t mi = (m + kStrip - 1) / kStrip, ni = (n + kStrip - 1) / kStrip;
  const size_t grain = std::max<size_t>(1, kGrain * 8 / (std::min(m, kStrip) * std::min(n, kStrip) * (row + 1)));
  parallel_ranges(batch * mi * ni, grain, [&](size_t t, size_t end) {
    for (; t < end; ++t) {
      const size_t g = t / (mi * ni), j = t / mi % ni * kStrip, i = t % mi * kStrip;
      table.products(da + (g * m + i) * row, std::min(kStrip, m - i), db + (g * n + j) * row,
                     std::min(kStrip, n - j), padded, count, result + (g * m + i) * n + j, n);
    }
  });
}

void exact_add(Whole<const double, 3> w, Whole<const uint32_t, 2> mu_a, Whole<const uint32_t, 2> mu_b,
               int width, bool first, Whole<double, 3> total) {
  require_width(width);
  const size_t batch = w.shape(0), m = w.shape(1), n = w.shape(2);
  require(total.shape(0) == batch && total.shape(1) == m && total.shape(2) == n &&
              mu_a.shape(0) == batch && mu_a.shape(1) == m && mu_b.shape(0) == batch &&
              mu_b.shape(1) == n,
          "shapes of w, mu_a, mu_b and total do not fit");
  const auto fn = TS_DISPATCH(exact).add;
  if (batch * m * n == 0) return;
  unlocked_ranges(batch * m, std::max<size_t>(1, kGrain / n), [&](size_t r, size_t end) {
    for (; r < end; ++r)
      fn(w.data() + r * n, mu_a.data()[r], mu_b.data() + r / m * n, n, width, first,
         total.data() + r * n);
  });
}

void exact_round(Whole<const double, 1> total, Whole<float, 1> out) {
  require(total.shape(0) == out.shape(0), "total and out must have equal sizes");
  const auto fn = TS_DISPATCH(exact).round;
  unlocked_ranges(total.shape(0), kGrain, [&](size_t from, size_t end) {
    fn(total.data() + from, end - from, out.data() + from);
  });
}

}  // namespace
}  // namespace tallystick

void bind_exact(nb::module_& m) {
  using namespace tallystick;
  define(m, "exact_integers", &exact_integers, as_is("x"), "segment"_a, "width"_a, as_is("mu"),
         as_is("out"),
         "out f32[R,n]: m(x) of x[R,n], any strides, whose rows are groups of `segment` elements; "
         "mu u32[R,ceil(n/segment)]: the bits of their largest magnitudes (NUMERICS 17.4).");
  define(m, "exact_products", &exact_products, as_is("a"), as_is("b"), "width"_a, as_is("out"),
         "out f64[G,M,N]: the sums of products of the integers a f32[G,M,k] and b f32[G,N,k], from "
         "digits of 8 bits (NUMERICS 17.8). k is at most a block's length.");
  define(m, "exact_add", &exact_add, as_is("w"), as_is("mu_a"), as_is("mu_b"), "width"_a, "first"_a,
         as_is("total"),
         "Adds the blocks with the integer sums w f64[G,M,N] to total (NUMERICS 17.5, 17.6).");
  define(m, "exact_round", &exact_round, as_is("total"), as_is("out"),
         "out = RN32(total) (NUMERICS 17.6).");
}
