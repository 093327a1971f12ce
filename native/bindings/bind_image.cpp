// Python's door to batch normalisation and max pooling (NUMERICS 6.12 - 6.16).
#include <vector>

#include "arrays.hpp"
#include "families/image.hpp"

namespace tallystick {
namespace {

using namespace arrays;
constexpr size_t kGrain = 4096;  // elements: below this a second thread costs more than it brings

size_t grain_of(size_t n) { return n >= kGrain ? 1 : kGrain / (n ? n : 1); }

// --- batch_norm ----------------------------------------------------------------------------------
BatchNormShape shape_of(const In& x) {
  require(x.ndim() >= 2, "batch_norm takes a batch of channels");
  BatchNormShape s = {x.shape(0), x.shape(1), 1};
  for (size_t d = 2; d < x.ndim(); ++d) s.inner *= x.shape(d);
  return s;
}

const float* per_channel(const MaybeIn& a, size_t channels) {
  if (!a) return nullptr;
  require(count(*a) == channels, "batch_norm: an operand does not have one value per channel");
  return a->data();
}
float* per_channel(const MaybeOut& a, size_t channels) {
  if (!a) return nullptr;
  require(count(*a) == channels, "batch_norm: an output does not have one value per channel");
  return a->data();
}

void batch_norm(In x, MaybeIn w, MaybeIn b, MaybeIn running_mean, MaybeIn running_var,
                double momentum, double eps, Out y, Out mean, Out rstd, MaybeOut new_mean,
                MaybeOut new_var) {
  const BatchNormShape s = shape_of(x);
  const size_t c = s.channels, n = s.batch * s.inner;
  require(count(y) == count(x) && count(mean) == c && count(rstd) == c,
          "batch_norm: an output does not fit");
  const bool running = running_mean.has_value();
  require(running_var.has_value() == running && new_mean.has_value() == running &&
          new_var.has_value() == running, "batch_norm: running statistics come in pairs");
  require_disjoint({y, mean, rstd, new_mean, new_var}, {w, b, running_mean, running_var});
  require_disjoint({mean, rstd, new_mean, new_var}, {x});
  require_same_or_apart(y, {x});
  const BatchNormForward p = {s, x.data(), per_channel(w, c), per_channel(b, c),
                              per_channel(running_mean, c), per_channel(running_var, c),
                              static_cast<float>(momentum), eps, y.data(), mean.data(), rstd.data(), per_channel(new_mean, c),
                              per_channel(new_var, c)};
  const auto fn = TS_DISPATCH(image).batch_norm;
  unlocked_ranges(c, grain_of(n), [&](size_t begin, size_t end) {
    std::vector<float> room(n + 1);
    fn(p, begin, end, room.data());
  });
}

void batch_norm_eval(In x, MaybeIn w, MaybeIn b, In mean, In var, double eps, Out y) {
  const BatchNormShape s = shape_of(x);
  const size_t c = s.channels;
  require(count(y) == count(x) && count(mean) == c && count(var) == c,
          "batch_norm: an operand does not fit");
  require_disjoint({y}, {mean, var, w, b});
  require_same_or_apart(y, {x});
  const BatchNormEval p = {s, x.data(), per_channel(w, c), per_channel(b, c), mean.data(),
                           var.data(), static_cast<float>(eps), y.data()};
  const auto fn = TS_DISPATCH(image).batch_norm_eval;
  unlocked_ranges(c, grain_of(s.batch * s.inner), [&](size_t begin, size_t end) {
    fn(p, begin, end);
  });
}

void batch_norm_backward(In g, In x, MaybeIn w, In mean, In spread, bool train, double eps,
                         MaybeOut dx, MaybeOut dw, MaybeOut db) {
  const BatchNormShape s = shape_of(x);
  const size_t c = s.channels, n = s.batch * s.inner;
  require(count(g) == count(x) && count(mean) == c && count(spread) == c,
          "batch_norm_backward: an operand does not fit");
  require(!dx || count(*dx) == count(x), "batch_norm_backward: dx does not fit");
  require_disjoint({dx, dw, db}, {mean, spread, w});
  require_disjoint({dw, db}, {g, x});
  require_same_or_apart(dx, {g, x});
  const BatchNormBackward p = {s, g.data(), x.data(), per_channel(w, c), mean.data(),
                               spread.data(), train, static_cast<float>(eps), dx ? dx->data() : nullptr,
                               per_channel(dw, c), per_channel(db, c)};
  const auto fn = TS_DISPATCH(image).batch_norm_backward;
  unlocked_ranges(c, grain_of(n), [&](size_t begin, size_t end) {
    std::vector<float> room(2 * n + 1);
    fn(p, begin, end, room.data());
  });
}

// --- max pooling ---------------------------------------------------------------------------------
// True if every output of an axis has a tap: the kernel writes the index of a tap there.
bool has_taps(int64_t size, int64_t out, int64_t k, int64_t s, int64_t p, int64_t d) {
  if (k < 1 || s < 1 || p < 0 || d < 1) return false;
  for (int64_t j = 0; j < out; ++j) {
    const int64_t origin = j * s - p, first = origin < 0 ? (-origin + d - 1) / d : 0;
    if (first >= k || origin + first * d >= size) return false;
  }
  return true;
}

void max_pool2d(In x, Pair kernel, Pair stride, Pair padding, Pair dilation, Out y,
                OutIndex index) {
  const size_t rank = x.ndim();
  require(rank >= 2 && y.ndim() == rank && index.ndim() == rank && count(index) == count(y),
          "max_pool2d: an output does not fit");
  PoolShape s = {x.shape(rank - 2), x.shape(rank - 1), y.shape(rank - 2), y.shape(rank - 1),
                 {}, {}, {}, {}};
  const size_t out = s.out_height * s.out_width;
  size_t planes = 1;
  for (size_t d = 0; d + 2 < rank; ++d) {
    require(x.shape(d) == y.shape(d), "max_pool2d: an output does not fit");
    planes *= x.shape(d);
  }
  for (size_t a = 0; a < 2; ++a) {
    require(has_taps(static_cast<int64_t>(x.shape(rank - 2 + a)),
                     static_cast<int64_t>(y.shape(rank - 2 + a)), kernel[a], stride[a], padding[a],
                     dilation[a]), "max_pool2d: an output has no tap inside the plane");
    s.kernel[a] = static_cast<size_t>(kernel[a]);
    s.stride[a] = stride[a], s.padding[a] = padding[a], s.dilation[a] = dilation[a];
  }
  require_disjoint({y, index}, {x});
  const auto fn = TS_DISPATCH(image).max_pool;
  unlocked_ranges(planes, grain_of(out * s.kernel[0] * s.kernel[1]), [&](size_t begin, size_t end) {
    fn(s, x.data(), y.data(), index.data(), begin, end);
  });
}

void max_pool2d_backward(In grad, Index index, Out out) {
  const size_t rank = out.ndim();
  require(rank >= 2 && grad.ndim() == rank && count(index) == count(grad),
          "max_pool2d_backward: operands do not fit");
  size_t planes = 1;
  for (size_t d = 0; d + 2 < rank; ++d) {
    require(grad.shape(d) == out.shape(d), "max_pool2d_backward: operands do not fit");
    planes *= out.shape(d);
  }
  const size_t size = out.shape(rank - 2) * out.shape(rank - 1);
  const size_t sources = grad.shape(rank - 2) * grad.shape(rank - 1);
  require_indices(index, size, 0, false);
  require_disjoint({out}, {grad, index});
  const auto fn = TS_DISPATCH(image).max_pool_backward;
  unlocked_ranges(planes, grain_of(size + sources), [&](size_t begin, size_t end) {
    fn(grad.data(), index.data(), sources, size, out.data(), begin, end);
  });
}

}  // namespace
}  // namespace tallystick

void bind_image(nb::module_& m) {
  using namespace tallystick;
  const auto x = "x"_a, y = "y"_a, g = "g"_a, mean = "mean"_a,
             eps = "eps"_a;
  const auto w = or_none("w"), b = or_none("b");
  define(m, "batch_norm", &batch_norm, x, w, b, or_none("running_mean"), or_none("running_var"),
         "momentum"_a, eps, y, mean, "rstd"_a, or_none("new_mean"), or_none("new_var"),
         "Training (NUMERICS 6.12).");
  define(m, "batch_norm_eval", &batch_norm_eval, x, w, b, mean, "var"_a, eps, y,
         "By running statistics (NUMERICS 6.14).");
  define(m, "batch_norm_backward", &batch_norm_backward, g, x, w, mean, "spread"_a, "train"_a, eps,
         or_none("dx"), or_none("dw"), or_none("db"),
         "The wanted ones of dx, dw and db; spread is rstd, or the running variance (NUMERICS 6.13).");
  define(m, "max_pool2d", &max_pool2d, x, "kernel"_a, "stride"_a, "padding"_a, "dilation"_a, y,
         "index"_a, "Planes of the last two axes (NUMERICS 6.15).");
  define(m, "max_pool2d_backward", &max_pool2d_backward, g, "index"_a, "out"_a,
         "Planes of the last two axes (NUMERICS 6.16).");
}
