// Layer normalisation and batch normalisation with their gradients (NUMERICS 6.5, 6.6, 6.12 - 6.14).
// The binary64 statistics of a batch are folds of reduce.cu.
#include "folds.hpp"

#include "tallystick/nn_elements.hpp"

namespace tallystick::TS_ISA {

// h from weight and bias, where they are present (6.5).
TS_INLINE float with_affine(float h, const float* w, const float* b, int64_t i) {
  if (w && b) return affine<true, true>(h, w[i], b[i]);
  if (w) return affine<true, false>(h, w[i], 0.0f);
  if (b) return affine<false, true>(h, 0.0f, b[i]);
  return h;
}

// --- layer_norm (6.5, 6.6) -----------------------------------------------------------------------
struct LayerNorm {
  const float *x, *w, *b;
  float *y, *mean, *rstd;  // y may be x
  int64_t rows, n;
  F32 eps;
};
template <class Team>
TS_INLINE void layer_norm_row(const Team& team, const LayerNorm& p, int64_t r) {
  const float *x = p.x + r * p.n, *w = p.w, *b = p.b;
  float* y = p.y + r * p.n;
  const float count = static_cast<float>(p.n);
  const float mean = team.template fold<Sum>(p.n, [=](int64_t i) { return x[i]; }) / count;
  const float var = team.template fold<Sum>(p.n, [=](int64_t i) {
    const float d = x[i] - mean;
    return d * d;
  }) / count;
  const float rstd = cr_rsqrt(var + p.eps.value);
  team.each(p.n, [=](int64_t i) { return x[i]; }, [=](int64_t i, float v) {
    put1(y + i, with_affine(normalised(v, mean, rstd), w, b, i));
  });
  if (team.is_first()) {
    put1(p.mean + r, mean);
    put1(p.rstd + r, rstd);
  }
}
TS_ROWS(norm_layer, LayerNorm, layer_norm_row)

struct LayerNormGradient {
  const float *g, *x, *mean, *rstd, *w;
  float* dx;  // may be g or x
  int64_t rows, n;
};
template <class Team>
TS_INLINE void layer_norm_gradient_row(const Team& team, const LayerNormGradient& p, int64_t r) {
  const float *g = p.g + r * p.n, *x = p.x + r * p.n, *w = p.w;
  float* dx = p.dx + r * p.n;
  const float mean = p.mean[r], rstd = p.rstd[r], count = static_cast<float>(p.n);
  const auto k_of = [=](int64_t i) { return w ? g[i] * w[i] : g[i]; };
  const Two sums = team.template fold<SumTwo>(p.n, [=](int64_t i) {
    const float k = k_of(i);
    return Two{k, k * normalised(x[i], mean, rstd)};
  });
  const float s1 = sums.a / count, s2 = sums.b / count;
  team.each(p.n, [=](int64_t i) { return Two{k_of(i), normalised(x[i], mean, rstd)}; },
            [=](int64_t i, Two v) { put1(dx + i, layer_norm_gradient(v.a, v.b, s1, s2, rstd)); });
}
TS_ROWS(norm_layer_backward, LayerNormGradient, layer_norm_gradient_row)

// Terms of dw: y is g, a and b are mean and rstd of every row, which is the element's number.
struct ReadRowProduct {
  TS_INLINE static float load(const FoldParams& p, int64_t at, int64_t, int64_t i) {
    return floats(p.y)[at] * normalised(floats(p.x)[at], floats(p.a)[i], floats(p.b)[i]);
  }
};
TS_FOLD(norm_row_products, Sum, ReadRowProduct)

// --- batch_norm (6.12 - 6.14) --------------------------------------------------------------------
// Terms of dw: as above, with mean and rstd of every channel, which is the output.
struct ReadProduct {
  TS_INLINE static float load(const FoldParams& p, int64_t at, int64_t o, int64_t) {
    return floats(p.y)[at] * normalised(floats(p.x)[at], floats(p.a)[o], floats(p.b)[o]);
  }
};
TS_FOLD(norm_products, Sum, ReadProduct)

struct BatchStatistics {
  const double *mean64, *squares;  // of every channel: m and q
  const float *running_mean, *running_var;
  float *mean, *rstd, *new_mean, *new_var;
  int64_t channels;
  F64 count, eps;
  F32 momentum;
};
TS_KERNEL(norm_batch_statistics, BatchStatistics, 256) {
  const double count = p.count.value, free_count = count > 0.0 ? count - 1.0 : 0.0;
  for (int64_t c = first_item(); c < p.channels; c += item_step()) {
    const double q = p.squares[c];
    const float mean = static_cast<float>(p.mean64[c]);
    if (p.running_mean) {
      const float u = static_cast<float>(q / free_count), momentum = p.momentum.value;
      put1(p.new_mean + c, running_statistic(p.running_mean[c], mean, momentum));
      put1(p.new_var + c, running_statistic(p.running_var[c], u, momentum));
    }
    put1(p.mean + c, mean);
    put1(p.rstd + c, batch_norm_rstd(q, count, p.eps.value));
  }
}

// rstd of running variances.
struct RunningRstd {
  const float* var;
  float* rstd;
  int64_t channels;
  F32 eps;
};
TS_KERNEL(norm_running_rstd, RunningRstd, 256) {
  for (int64_t c = first_item(); c < p.channels; c += item_step())
    p.rstd[c] = cr_rsqrt(p.var[c] + p.eps.value);
}

struct BatchNorm {
  const float *x, *w, *b, *mean, *rstd;
  float* y;  // may be x
  int64_t count, channels, inner;
};
TS_INLINE int64_t channel_of(int64_t i, int64_t channels, int64_t inner) {
  const int64_t plane = quotient(i, inner);
  return plane - quotient(plane, channels) * channels;
}
TS_KERNEL(norm_batch, BatchNorm, 256) {
  const auto get = [&](int64_t i) { return p.x[i]; };
  each_item(first_item(), item_step(), p.count, get, [&](int64_t i, float x) {
    const int64_t c = channel_of(i, p.channels, p.inner);
    put1(p.y + i, with_affine(normalised(x, p.mean[c], p.rstd[c]), p.w, p.b, c));
  });
}

// What the gradient of a channel needs once for all its elements (6.13).
struct BatchCoefficients {
  const float *dw, *db, *w, *rstd;
  float *s1, *s2, *r;
  int64_t channels, train;
  F32 count;
};
TS_KERNEL(norm_batch_coefficients, BatchCoefficients, 256) {
  for (int64_t c = first_item(); c < p.channels; c += item_step()) {
    if (p.train) {
      p.s1[c] = p.db[c] / p.count.value;
      p.s2[c] = p.dw[c] / p.count.value;
    }
    p.r[c] = p.w ? p.rstd[c] * p.w[c] : p.rstd[c];
  }
}

struct BatchGradient {
  const float *g, *x, *mean, *rstd, *s1, *s2, *r;
  float* dx;  // may be g or x
  int64_t count, channels, inner, train;
};
TS_KERNEL(norm_batch_backward, BatchGradient, 256) {
  const auto get = [&](int64_t i) { return Two{p.g[i], p.train ? p.x[i] : 0.0f}; };
  each_item(first_item(), item_step(), p.count, get, [&](int64_t i, Two v) {
    const int64_t c = channel_of(i, p.channels, p.inner);
    if (p.train) {
      const float h = normalised(v.b, p.mean[c], p.rstd[c]);
      put1(p.dx + i, batch_norm_gradient(v.a, h, p.s1[c], p.s2[c], p.r[c]));
    } else {
      put1(p.dx + i, v.a * p.r[c]);
    }
  });
}

}  // namespace tallystick::TS_ISA
