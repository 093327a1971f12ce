// Python's door to normalisation, activation and losses (NUMERICS 6, 7).
#include <vector>

#include "arrays.hpp"
#include "families/nn.hpp"

namespace tallystick {
namespace {

using namespace arrays;
constexpr size_t kGrain = 4096;  // elements: below this a second thread costs more than it brings

size_t grain_rows(size_t n) { return n >= kGrain ? 1 : kGrain / (n ? n : 1); }

size_t rows_of(size_t total, size_t n) {
  require(n == 0 ? total == 0 : total % n == 0, "the row length does not divide the tensor");
  return n == 0 ? 0 : total / n;
}
const float* maybe(const MaybeIn& a, size_t n) {
  if (!a) return nullptr;
  require(count(*a) == n, "a weight or bias does not fit the row length");
  return a->data();
}

// --- softmax -------------------------------------------------------------------------------------
template <auto Fn>
void rows_unary(In x, Out y, size_t n) {
  const size_t rows = rows_of(count(x), n);
  require(count(y) == count(x), "input and output must have one size");
  require_same_or_apart(y, {x});
  const auto fn = TS_DISPATCH(nn).*Fn;
  unlocked_ranges(rows, grain_rows(n), [&](size_t b, size_t e) {
    fn(x.data() + b * n, y.data() + b * n, e - b, n);
  });
}

template <auto Fn>
void rows_binary(In g, In y, Out out, size_t n) {
  const size_t rows = rows_of(count(y), n);
  require(count(g) == count(y) && count(out) == count(y), "inputs and output must have one size");
  require_same_or_apart(out, {g, y});
  const auto fn = TS_DISPATCH(nn).*Fn;
  unlocked_ranges(rows, grain_rows(n), [&](size_t b, size_t e) {
    fn(g.data() + b * n, y.data() + b * n, out.data() + b * n, e - b, n);
  });
}

// --- layer_norm ----------------------------------------------------------------------------------
void layer_norm(In x, MaybeIn w, MaybeIn b, double eps, Out y, Out mean, Out rstd, size_t n) {
  const size_t rows = n ? rows_of(count(x), n) : count(mean);
  require(count(x) == rows * n && count(y) == count(x) && count(mean) == rows &&
          count(rstd) == rows, "layer_norm: an output does not fit");
  require_same_or_apart(y, {x});
  require_disjoint({y, mean, rstd}, {w, b});
  require_disjoint({mean, rstd}, {x});
  const float *pw = maybe(w, n), *pb = maybe(b, n);
  const auto fn = TS_DISPATCH(nn).layer_norm;
  unlocked_ranges(rows, grain_rows(n), [&](size_t first, size_t last) {
    fn(x.data() + first * n, pw, pb, static_cast<float>(eps), y.data() + first * n,
       mean.data() + first, rstd.data() + first, last - first, n);
  });
}

void layer_norm_backward(In g, In x, In mean, In rstd, MaybeIn w, MaybeOut dx, MaybeOut dw,
                         MaybeOut db, size_t n) {
  const size_t rows = count(mean);
  require(count(x) == rows * n && count(g) == count(x) && count(rstd) == rows,
          "layer_norm_backward: inputs do not fit");
  require(!dx || count(*dx) == count(x), "layer_norm_backward: dx does not fit");
  for (const MaybeOut* out : {&dw, &db})
    require(!*out || count(**out) == n, "layer_norm_backward: dw or db does not fit");
  require_disjoint({dx, dw, db}, {w, mean, rstd});
  require_disjoint({dw, db}, {g, x});
  require_same_or_apart(dx, {g, x});
  const LayerNormBackward p = {g.data(), x.data(), mean.data(), rstd.data(), maybe(w, n), rows, n};
  float *px = dx ? dx->data() : nullptr, *pw = dw ? dw->data() : nullptr,
        *pb = db ? db->data() : nullptr;
  const auto& table = TS_DISPATCH(nn);
  const size_t scratch = table.column_scratch(rows), tile = table.column_tile;
  nb::gil_scoped_release unlocked;
  // Before dx: dx may overwrite g or x.
  if (pw || pb)
    parallel_ranges((n + tile - 1) / tile, 1, [&](size_t b, size_t e) {
      std::vector<float> room(scratch + 1);
      table.layer_norm_dwb(p, pw, pb, b * tile, e * tile < n ? e * tile : n, room.data());
    });
  if (px)
    parallel_ranges(rows, grain_rows(n), [&](size_t b, size_t e) {
      table.layer_norm_dx(p, px, b, e);
    });
}

// --- losses --------------------------------------------------------------------------------------
enum class Reduction { mean, sum, none };

Reduction reduction_of(int code) {
  require(code >= 0 && code <= 2, "reduction must be 0 (mean), 1 (sum) or 2 (none)");
  return static_cast<Reduction>(code);
}

// The number of rows that are not ignored, RN32 (7.1).
float live_rows(const Index& target, int64_t ignore_index) {
  const int64_t* t = target.data();
  int64_t live = 0;
  for (size_t i = 0, n = count(target); i < n; ++i) live += t[i] != ignore_index;
  return static_cast<float>(live);
}

void check_logits(const In& x, const Index& target, int64_t ignore_index) {
  require(x.ndim() == 2 && count(target) == x.shape(0), "a loss takes logits [R, V] and targets [R]");
  require_indices(target, x.shape(1), ignore_index, true);
}

// `loss` from the rows' losses: they are `loss` itself with reduction `none`.
void reduce_loss(const NnTable& table, const float* rows, size_t n, Reduction reduction,
                 float live, float* loss) {
  if (reduction == Reduction::none) return;
  *loss = table.loss_sum(rows, n, reduction == Reduction::mean, live);
}

void cross_entropy(In x, Index target, int64_t ignore_index, int code, Out loss, Out row_max,
                   Out row_sum) {
  const Reduction reduction = reduction_of(code);
  check_logits(x, target, ignore_index);
  const size_t rows = x.shape(0), n = x.shape(1);
  require(n > 0 || rows == 0, "cross_entropy: no classes");
  require(count(loss) == (reduction == Reduction::none ? rows : 1) && count(row_max) == rows &&
          count(row_sum) == rows, "cross_entropy: an output does not fit");
  require_disjoint({loss, row_max, row_sum}, {x, target});
  const float live = live_rows(target, ignore_index);
  std::vector<float> room(reduction == Reduction::none ? 0 : rows + 1);
  float *row_loss = room.empty() ? loss.data() : room.data(), *out = loss.data();
  const CrossEntropyForward p = {x.data(), target.data(), ignore_index, n,
                                 row_loss, row_max.data(), row_sum.data()};
  const auto& table = TS_DISPATCH(nn);
  nb::gil_scoped_release unlocked;
  parallel_ranges(rows, grain_rows(n), [&](size_t b, size_t e) { table.cross_entropy(p, b, e); });
  reduce_loss(table, row_loss, rows, reduction, live, out);
}

void check_loss_grad(const In& grad, const In& x, Reduction reduction, const Out& out) {
  require(count(grad) == (reduction == Reduction::none ? x.shape(0) : 1),
          "the gradient does not fit the reduction");
  require(count(out) == count(x), "input and output must have one size");
  require_disjoint({out}, {grad});
}

void cross_entropy_backward(In grad, In x, Index target, In row_max, In row_sum, int64_t ignore_index,
                            int code, Out out) {
  const Reduction reduction = reduction_of(code);
  check_logits(x, target, ignore_index);
  check_loss_grad(grad, x, reduction, out);
  const size_t rows = x.shape(0), n = x.shape(1);
  require(count(row_max) == rows && count(row_sum) == rows, "cross_entropy_backward: m or row_sum does not fit");
  require_same_or_apart(out, {x});
  require_disjoint({out}, {target, row_max, row_sum});
  const CrossEntropyBackward p = {
      grad.data(), x.data(), target.data(), row_max.data(), row_sum.data(), ignore_index, n,
      reduction == Reduction::none, live_rows(target, ignore_index), reduction == Reduction::mean,
      out.data()};
  const auto fn = TS_DISPATCH(nn).cross_entropy_backward;
  unlocked_ranges(rows, grain_rows(n), [&](size_t b, size_t e) { fn(p, b, e); });
}

void nll_loss(In x, Index target, int64_t ignore_index, int code, Out loss, Out total_weight) {
  const Reduction reduction = reduction_of(code);
  check_logits(x, target, ignore_index);
  const size_t rows = x.shape(0), n = x.shape(1);
  require(count(loss) == (reduction == Reduction::none ? rows : 1) && count(total_weight) == 1,
          "nll_loss: an output does not fit");
  require_disjoint({loss, total_weight}, {x, target});
  const float live = live_rows(target, ignore_index);
  std::vector<float> room(reduction == Reduction::none ? 0 : rows + 1);
  float* row_loss = room.empty() ? loss.data() : room.data();
  const auto& table = TS_DISPATCH(nn);
  table.nll(x.data(), target.data(), ignore_index, n, row_loss, rows);
  reduce_loss(table, row_loss, rows, reduction, live, loss.data());
  *total_weight.data() = live;
}

void nll_loss_backward(In grad, In x, Index target, In total_weight, int64_t ignore_index, int code,
                       Out out) {
  const Reduction reduction = reduction_of(code);
  check_logits(x, target, ignore_index);
  check_loss_grad(grad, x, reduction, out);
  require(count(total_weight) == 1, "nll_loss_backward: total_weight is a scalar");
  require_same_or_apart(out, {x});
  require_disjoint({out}, {target, total_weight});
  const size_t rows = x.shape(0), n = x.shape(1);
  const CrossEntropyBackward p = {
      grad.data(), x.data(), target.data(), nullptr, nullptr, ignore_index, n,
      reduction == Reduction::none, *total_weight.data(), reduction == Reduction::mean, out.data()};
  const auto fn = TS_DISPATCH(nn).nll_backward;
  unlocked_ranges(rows, grain_rows(n), [&](size_t b, size_t e) { fn(p, b, e); });
}

}  // namespace
}  // namespace tallystick

void bind_nn(nb::module_& m) {
  using namespace tallystick;
  using T = NnTable;
  const auto x = "x"_a, y = "y"_a, g = "g"_a, out = "out"_a,
             n = "n"_a;
  define(m, "softmax", &rows_unary<&T::softmax>, x, y, n, "Rows of n elements (NUMERICS 6.1).");
  define(m, "log_softmax", &rows_unary<&T::log_softmax>, x, y, n,
         "Rows of n elements (NUMERICS 6.2).");
  define(m, "softmax_backward", &rows_binary<&T::softmax_backward>, g, y, out, n, "NUMERICS 6.3.");
  define(m, "log_softmax_backward", &rows_binary<&T::log_softmax_backward>, g, y, out, n,
         "NUMERICS 6.4.");
  define(m, "layer_norm", &layer_norm, x, or_none("w"), or_none("b"), "eps"_a, y, "mean"_a, "rstd"_a, n,
         "Rows of n elements (NUMERICS 6.5).");
  define(m, "layer_norm_backward", &layer_norm_backward, g, x, "mean"_a, "rstd"_a, or_none("w"),
         or_none("dx"), or_none("dw"), or_none("db"), n,
         "The wanted ones of dx, dw and db (NUMERICS 6.6).");
  const auto target = "target"_a, ignore = "ignore_index"_a,
             reduction = "reduction"_a, grad = "grad"_a;
  define(m, "cross_entropy", &cross_entropy, x, target, ignore, reduction, "loss"_a, "row_max"_a,
         "row_sum"_a, "NUMERICS 7.1; reduction 0 mean, 1 sum, 2 none.");
  define(m, "cross_entropy_backward", &cross_entropy_backward, grad, x, target, "row_max"_a,
         "row_sum"_a, ignore, reduction, out, "NUMERICS 7.2.");
  define(m, "nll_loss", &nll_loss, x, target, ignore, reduction, "loss"_a, "total_weight"_a,
         "NUMERICS 7.3.");
  define(m, "nll_loss_backward", &nll_loss_backward, grad, x, target, "total_weight"_a, ignore,
         reduction, out, "NUMERICS 7.3.");
}
