// Batch normalisation and max pooling, one copy per instruction set (NUMERICS 6.12 - 6.16).
#include "families/image.hpp"

#include "tallystick/nn_elements.hpp"
#include "tallystick/reduce.hpp"
#include "tallystick/reduce_f64.hpp"

namespace tallystick {
namespace TS_ISA {
namespace {

TS_INLINE float rsqrt1(float x) { return v_lane0(cr_rsqrt(v_set1(x))); }

// --- batch_norm (6.12 - 6.14) --------------------------------------------------------------------
// A channel is summed as one row (3.3), so it is gathered first: blocks of a sum cross its runs.
TS_INLINE void copy_run(float* to, const float* from, size_t n) {
  size_t i = 0;
  for (; i + kF32Lanes <= n; i += kF32Lanes) v_store(to + i, v_load(from + i));
  for (; i < n; ++i) to[i] = from[i];
}

void gather(const BatchNormShape& s, size_t channel, const float* x, float* row) {
  const float* from = x + channel * s.inner;
  for (size_t b = 0; b < s.batch; ++b, from += s.channels * s.inner, row += s.inner)
    copy_run(row, from, s.inner);
}

void scatter(const BatchNormShape& s, size_t channel, const float* row, float* y) {
  float* to = y + channel * s.inner;
  for (size_t b = 0; b < s.batch; ++b, to += s.channels * s.inner, row += s.inner)
    copy_run(to, row, s.inner);
}

template <bool W, bool B>
TS_INLINE void normalise(const float* x, size_t n, float mean, float rstd, float w, float b,
                         float* y) {
  const f32v mv = v_set1(mean), rv = v_set1(rstd), wv = v_set1(w), bv = v_set1(b);
  map_out(n, y, [=](size_t i, size_t k) TS_LAMBDA {
    return affine<W, B>(normalised(v_load_any(x + i, k), mv, rv), wv, bv);
  });
}

void normalise_any(const float* x, size_t n, float mean, float rstd, const float* w, const float* b,
                   float* y) {
  if (w && b) normalise<true, true>(x, n, mean, rstd, *w, *b, y);
  else if (w) normalise<true, false>(x, n, mean, rstd, *w, 0.0f, y);
  else if (b) normalise<false, true>(x, n, mean, rstd, 0.0f, *b, y);
  else normalise<false, false>(x, n, mean, rstd, 0.0f, 0.0f, y);
}

TS_INLINE const float* at(const float* p, size_t i) { return p ? p + i : nullptr; }

void batch_norm(const BatchNormForward& p, size_t begin, size_t end, float* row) {
  const size_t n = p.shape.batch * p.shape.inner;
  const double count = static_cast<double>(n), free_count = static_cast<double>(n ? n - 1 : 0);
  for (size_t c = begin; c < end; ++c) {
    gather(p.shape, c, p.x, row);
    const double m = sum64_of(n, [=](size_t i) TS_LAMBDA {
      return static_cast<double>(row[i]);
    }) / count;
    const double q = sum64_of(n, [=](size_t i) TS_LAMBDA {
      const double d = static_cast<double>(row[i]) - m;
      return d * d;
    });
    const float mean = static_cast<float>(m);
    const float rstd = batch_norm_rstd(q, count, p.eps);
    if (p.running_mean) {
      const float old_mean = p.running_mean[c], old_var = p.running_var[c];
      const float u = static_cast<float>(q / free_count);
      put1(p.new_mean + c, running_statistic(old_mean, mean, p.momentum));
      put1(p.new_var + c, running_statistic(old_var, u, p.momentum));
    }
    normalise_any(row, n, mean, rstd, at(p.weight, c), at(p.bias, c), row);
    scatter(p.shape, c, row, p.y);
    put1(p.mean + c, mean);
    put1(p.rstd + c, rstd);
  }
}

void batch_norm_eval(const BatchNormEval& p, size_t begin, size_t end) {
  const BatchNormShape& s = p.shape;
  for (size_t c = begin; c < end; ++c) {
    const float rstd = rsqrt1(p.var[c] + p.eps);
    for (size_t b = 0; b < s.batch; ++b) {
      const size_t run = (b * s.channels + c) * s.inner;
      normalise_any(p.x + run, s.inner, p.mean[c], rstd, at(p.weight, c), at(p.bias, c), p.y + run);
    }
  }
}

// dx into `row`, which may be g (6.13).
void batch_norm_dx(const float* g, const float* h, size_t n, bool train, float dw, float db,
                   float r, float* row) {
  const f32v rv = v_set1(r);
  if (!train) {
    map_out(n, row, [=](size_t i, size_t k) TS_LAMBDA { return v_mul(v_load_any(g + i, k), rv); });
    return;
  }
  const float count = static_cast<float>(n);
  const f32v s1 = v_set1(db / count), s2 = v_set1(dw / count);
  map_out(n, row, [=](size_t i, size_t k) TS_LAMBDA {
    return batch_norm_gradient(v_load_any(g + i, k), v_load_any(h + i, k), s1, s2, rv);
  });
}

void batch_norm_backward(const BatchNormBackward& p, size_t begin, size_t end, float* scratch) {
  const size_t n = p.shape.batch * p.shape.inner;
  float *g = scratch, *h = scratch + n;
  const bool reads_x = p.dw || (p.dx && p.train);
  for (size_t c = begin; c < end; ++c) {
    const float rstd = p.train ? p.spread[c] : rsqrt1(p.spread[c] + p.eps);
    gather(p.shape, c, p.grad, g);
    float db = 0.0f, dw = 0.0f;
    if (p.db || p.train) db = sum_row(g, n);
    if (reads_x) {
      gather(p.shape, c, p.x, h);
      const f32v mean = v_set1(p.mean[c]), rv = v_set1(rstd);
      dw = sum_of(n, [=](size_t i, size_t k) TS_LAMBDA {
        const f32v v = normalised(v_load_any(h + i, k), mean, rv);
        v_store_any(h + i, v, k);
        return v_mul(v_load_any(g + i, k), v);
      });
    }
    if (p.dx) {
      batch_norm_dx(g, h, n, p.train, dw, db, p.weight ? rstd * p.weight[c] : rstd, g);
      scatter(p.shape, c, g, p.dx);
    }
    if (p.dw) put1(p.dw + c, dw);
    if (p.db) put1(p.db + c, db);
  }
}

// --- max pooling (6.15, 6.16) --------------------------------------------------------------------
// Taps first..last-1 of an output are inside the axis.
struct Taps {
  ptrdiff_t origin;
  size_t first, last;
};

TS_INLINE Taps taps_of(const PoolShape& s, size_t axis, size_t out, size_t size) {
  const ptrdiff_t d = s.dilation[axis], limit = static_cast<ptrdiff_t>(size);
  Taps t = {static_cast<ptrdiff_t>(out) * s.stride[axis] - s.padding[axis], 0, 0};
  if (t.origin < 0) t.first = static_cast<size_t>((-t.origin + d - 1) / d);
  if (t.origin < limit)
    t.last = ts_min(s.kernel[axis], static_cast<size_t>((limit - t.origin + d - 1) / d));
  return t;
}

// Every comparison is of the best place so far with a later one, so the lowest index stays (3.5).
void max_pool_plane(const PoolShape& s, const float* x, float* y, int64_t* index) {
  for (size_t oy = 0; oy < s.out_height; ++oy) {
    const Taps rows = taps_of(s, 0, oy, s.height);
    for (size_t ox = 0; ox < s.out_width; ++ox, ++y, ++index) {
      const Taps columns = taps_of(s, 1, ox, s.width);
      ptrdiff_t best = -1;
      float value = 0.0f;
      for (size_t i = rows.first; i < rows.last; ++i) {
        const ptrdiff_t row = (rows.origin + static_cast<ptrdiff_t>(i) * s.dilation[0]) *
                              static_cast<ptrdiff_t>(s.width);
        for (size_t j = columns.first; j < columns.last; ++j) {
          const ptrdiff_t place = row + columns.origin + static_cast<ptrdiff_t>(j) * s.dilation[1];
          const float v = x[place];
          if (best < 0 || v > value || (v != v && value == value)) {
            best = place;
            value = v;
          }
        }
      }
      put1(y, value);
      *index = best;
    }
  }
}

void max_pool(const PoolShape& s, const float* x, float* y, int64_t* index, size_t begin,
              size_t end) {
  const size_t in = s.height * s.width, out = s.out_height * s.out_width;
  for (size_t plane = begin; plane < end; ++plane)
    max_pool_plane(s, x + plane * in, y + plane * out, index + plane * out);
}

void max_pool_backward(const float* grad, const int64_t* index, size_t sources, size_t size,
                       float* out, size_t begin, size_t end) {
  for (size_t plane = begin; plane < end; ++plane) {
    const float* g = grad + plane * sources;
    const int64_t* to = index + plane * sources;
    float* d = out + plane * size;
    for (size_t i = 0; i < size; ++i) d[i] = 0.0f;
    for (size_t i = 0; i < sources; ++i) d[to[i]] += g[i];
    map_out(size, d, [=](size_t i, size_t k) TS_LAMBDA { return v_load_any(d + i, k); });
  }
}

}  // namespace
}  // namespace TS_ISA

namespace isa = TS_ISA;
TS_DEFINE_TABLE(ImageTable, image) = {
    isa::batch_norm, isa::batch_norm_eval, isa::batch_norm_backward, isa::max_pool,
    isa::max_pool_backward};

}  // namespace tallystick
