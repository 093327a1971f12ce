// Normalisation, activation and losses, one copy per instruction set (NUMERICS 6, 7).
#include "families/nn.hpp"

#include "tallystick/nn_elements.hpp"
#include "tallystick/reduce.hpp"

namespace tallystick {
namespace TS_ISA {
namespace {

TS_INLINE float log1(float s) { return v_lane0(cr_log(v_set1(s))); }

// --- softmax (6.1 - 6.4) -------------------------------------------------------------------------
// Short rows are taken kGroup at a time, stage by stage: a stage's rows do not wait for each other,
// and one vector evaluates the whole group's logarithms.
constexpr size_t kGroup = 16;
TS_INLINE size_t group_of(size_t rows_left, size_t n) { return n > 1024 ? 1 : ts_min(rows_left, kGroup); }

TS_INLINE float sum_exp(const float* x, size_t n, f32v m) {
  return sum_of(n, [=](size_t i, size_t k) TS_LAMBDA {
    return exp_below(v_load_any(x + i, k), m);
  });
}

// As sum_exp, and the terms go to e, which may be x.
TS_INLINE float sum_exp_kept(const float* x, float* e, size_t n, f32v m) {
  return sum_of(n, [=](size_t i, size_t k) TS_LAMBDA {
    const f32v v = exp_below(v_load_any(x + i, k), m);
    v_store_any(e + i, v, k);
    return v;
  });
}

void softmax(const float* x, float* y, size_t rows, size_t n) {
  float s[kGroup];
  for (size_t r = 0, g; r < rows; r += g, x += g * n, y += g * n) {
    g = group_of(rows - r, n);
    for (size_t j = 0; j < g; ++j) s[j] = max_row(x + j * n, n);
    for (size_t j = 0; j < g; ++j) s[j] = sum_exp_kept(x + j * n, y + j * n, n, v_set1(s[j]));
    for (size_t j = 0; j < g; ++j) {
      float* e = y + j * n;
      const f32v d = v_set1(s[j]);
      map_out(n, e, [=](size_t i, size_t k) TS_LAMBDA {
        return softmax_of(v_load_any(e + i, k), d);
      });
    }
  }
}

void log_softmax(const float* x, float* y, size_t rows, size_t n) {
  float m[kGroup], l[kGroup];
  for (size_t j = 0; j < kGroup; ++j) l[j] = 1.0f;
  for (size_t r = 0, g; r < rows; r += g, x += g * n, y += g * n) {
    g = group_of(rows - r, n);
    for (size_t j = 0; j < g; ++j) m[j] = max_row(x + j * n, n);
    for (size_t j = 0; j < g; ++j) l[j] = sum_exp(x + j * n, n, v_set1(m[j]));
    for (size_t j = 0; j < g; j += kF32Lanes) v_store(l + j, cr_log(v_load(l + j)));
    for (size_t j = 0; j < g; ++j) {
      const float* z = x + j * n;
      const f32v top = v_set1(m[j]), log_s = v_set1(l[j]);
      map_out(n, y + j * n, [=](size_t i, size_t k) TS_LAMBDA {
        return log_softmax_of(v_load_any(z + i, k), top, log_s);
      });
    }
  }
}

void softmax_backward(const float* g, const float* y, float* out, size_t rows, size_t n) {
  for (size_t r = 0; r < rows; ++r, g += n, y += n, out += n) {
    const f32v s = v_set1(sum_of(n, [=](size_t i, size_t k) TS_LAMBDA {
      return v_mul(v_load_any(g + i, k), v_load_any(y + i, k));
    }));
    map_out(n, out, [=](size_t i, size_t k) TS_LAMBDA {
      return softmax_gradient(v_load_any(g + i, k), v_load_any(y + i, k), s);
    });
  }
}

void log_softmax_backward(const float* g, const float* y, float* out, size_t rows, size_t n) {
  for (size_t r = 0; r < rows; ++r, g += n, y += n, out += n) {
    const f32v s = v_set1(sum_row(g, n));
    map_out(n, out, [=](size_t i, size_t k) TS_LAMBDA {
      return log_softmax_gradient(v_load_any(g + i, k), v_load_any(y + i, k), s);
    });
  }
}

// --- layer_norm (6.5, 6.6) -----------------------------------------------------------------------
template <bool W, bool B>
TS_INLINE void layer_norm_row(const float* x, const float* w, const float* b, f32v mean, f32v rstd,
                              float* y, size_t n) {
  map_out(n, y, [=](size_t i, size_t k) TS_LAMBDA {
    const f32v h = normalised(v_load_any(x + i, k), mean, rstd);
    return affine<W, B>(h, W ? v_load_any(w + i, k) : h, B ? v_load_any(b + i, k) : h);
  });
}

void layer_norm(const float* x, const float* w, const float* b, float eps, float* y, float* mean,
                float* rstd, size_t rows, size_t n) {
  const float count = static_cast<float>(n);
  for (size_t r = 0; r < rows; ++r, x += n, y += n) {
    const float mu = sum_row(x, n) / count;
    const f32v mv = v_set1(mu);
    const float var = sum_of(n, [=](size_t i, size_t k) TS_LAMBDA {
      const f32v d = v_sub(v_load_any(x + i, k), mv);
      return v_mul(d, d);
    }) / count;
    const float rs = v_lane0(cr_rsqrt(v_set1(var + eps)));
    const f32v rv = v_set1(rs);
    if (w && b) layer_norm_row<true, true>(x, w, b, mv, rv, y, n);
    else if (w) layer_norm_row<true, false>(x, w, b, mv, rv, y, n);
    else if (b) layer_norm_row<false, true>(x, w, b, mv, rv, y, n);
    else layer_norm_row<false, false>(x, w, b, mv, rv, y, n);
    put1(mean + r, mu);
    put1(rstd + r, rs);
  }
}

// Two SUMs in one pass: f(i, k, &a, &b) gives both terms of elements i..i+k-1.
template <class F>
TS_INLINE void pair_block(size_t base, size_t n, float* a, float* b, const F& f) {
  f32v acc[kSumRegs], bcc[kSumRegs], u, v;
  for (size_t r = 0; r < kSumRegs; ++r) acc[r] = bcc[r] = v_minus_zero();
  const auto add = [&](size_t i, size_t k, size_t r) TS_LAMBDA {
    f(base + i, k, &u, &v);
    if (k < kF32Lanes) {
      u = v_blend(m_first(k), u, v_minus_zero());
      v = v_blend(m_first(k), v, v_minus_zero());
    }
    acc[r] = v_add(acc[r], u);
    bcc[r] = v_add(bcc[r], v);
  };
  size_t i = 0;
  for (; i + kSumLanes <= n; i += kSumLanes)
    for (size_t r = 0; r < kSumRegs; ++r) add(i + r * kF32Lanes, kF32Lanes, r);
  size_t r = 0;
  for (; i + kF32Lanes <= n && r < kSumRegs; i += kF32Lanes, ++r) add(i, kF32Lanes, r);
  if (kF32Lanes > 1 && i < n && r < kSumRegs) add(i, n - i, r);
  *a = lanes_tree(acc);
  *b = lanes_tree(bcc);
}

template <class F>
TS_INLINE void sum_pair(size_t n, float* sums, const F& f) {
  sums[0] = sums[1] = 0.0f;
  if (n == 0) return;
  if (n > 4 * kSumBlock) {
    for (size_t which = 0; which < 2; ++which)
      sums[which] = sum_of(n, [=](size_t i, size_t k) TS_LAMBDA {
        f32v term[2];
        f(i, k, term, term + 1);
        return term[which];
      });
    return;
  }
  float a[4], b[4];
  const size_t blocks = ceil_div(n, kSumBlock);
  for (size_t j = 0; j < blocks; ++j)
    pair_block(j * kSumBlock, ts_min(kSumBlock, n - j * kSumBlock), a + j, b + j, f);
  sums[0] = blocks == 1 ? a[0] : few_blocks_tree(a, blocks);
  sums[1] = blocks == 1 ? b[0] : few_blocks_tree(b, blocks);
}

template <bool W>
TS_INLINE void layer_norm_dx_row(const float* g, const float* x, const float* w, f32v mean,
                                 f32v rstd, float* dx, size_t n) {
  const float count = static_cast<float>(n);
  const auto k_of = [=](size_t i, size_t k) TS_LAMBDA {
    const f32v v = v_load_any(g + i, k);
    return W ? v_mul(v, v_load_any(w + i, k)) : v;
  };
  const auto h_of = [=](size_t i, size_t k) TS_LAMBDA {
    return normalised(v_load_any(x + i, k), mean, rstd);
  };
  float sums[2];
  sum_pair(n, sums, [=](size_t i, size_t k, f32v* first, f32v* second) TS_LAMBDA {
    *first = k_of(i, k);
    *second = v_mul(*first, h_of(i, k));
  });
  const f32v s1 = v_set1(sums[0] / count), s2 = v_set1(sums[1] / count);
  map_out(n, dx, [=](size_t i, size_t k) TS_LAMBDA {
    return layer_norm_gradient(k_of(i, k), h_of(i, k), s1, s2, rstd);
  });
}

void layer_norm_dx(const LayerNormBackward& p, float* dx, size_t begin, size_t end) {
  for (size_t r = begin; r < end; ++r) {
    const size_t at = r * p.n;
    const f32v mean = v_set1(p.mean[r]), rstd = v_set1(p.rstd[r]);
    if (p.weight)
      layer_norm_dx_row<true>(p.grad + at, p.x + at, p.weight, mean, rstd, dx + at, p.n);
    else
      layer_norm_dx_row<false>(p.grad + at, p.x + at, nullptr, mean, rstd, dx + at, p.n);
  }
}

void canonical_columns(float* out, size_t n) {
  map_out(n, out, [=](size_t i, size_t k) TS_LAMBDA { return v_load_any(out + i, k); });
}

void layer_norm_dwb(const LayerNormBackward& p, float* dw, float* db, size_t begin, size_t end,
                    float* scratch) {
  const float *g = p.grad, *x = p.x, *mean = p.mean, *rstd = p.rstd;
  const size_t n = p.n;
  for (size_t col = begin; col < end; col += kColTile) {
    const size_t cols = ts_min(kColTile, end - col);
    if (dw) {
      sum_columns(p.rows, col, cols, dw + col, scratch,
                  [=](size_t i, size_t j, size_t k) TS_LAMBDA {
        return v_mul(v_load_any(g + i * n + j, k),
                     normalised(v_load_any(x + i * n + j, k), v_set1(mean[i]), v_set1(rstd[i])));
      });
      canonical_columns(dw + col, cols);
    }
    if (db) {
      sum_columns(p.rows, col, cols, db + col, scratch,
                  [=](size_t i, size_t j, size_t k) TS_LAMBDA {
        return v_load_any(g + i * n + j, k);
      });
      canonical_columns(db + col, cols);
    }
  }
}

size_t scratch_of(size_t rows) { return column_scratch(rows); }

// --- losses (7.1 - 7.3) --------------------------------------------------------------------------
void cross_entropy(const CrossEntropyForward& p, size_t begin, size_t end) {
  for (size_t r = begin; r < end; ++r) {
    const float* x = p.x + r * p.vocabulary;
    const float m = max_row(x, p.vocabulary);
    const float s = sum_exp(x, p.vocabulary, v_set1(m));
    const int64_t t = p.target[r];
    put1(p.row_max + r, m);
    put1(p.row_sum + r, s);
    if (t == p.ignore_index) p.loss[r] = 0.0f;
    else put1(p.loss + r, cross_entropy_loss(log1(s), x[t], m));
  }
}

TS_INLINE float row_coefficient(const CrossEntropyBackward& p, size_t r) {
  const float g = p.grad[p.per_row ? r : 0];
  return p.divide ? g / p.divisor : g;
}

TS_INLINE void zero_row(float* out, size_t n) {
  for (size_t i = 0; i < n; ++i) out[i] = 0.0f;
}

void cross_entropy_backward(const CrossEntropyBackward& p, size_t begin, size_t end) {
  const size_t n = p.vocabulary;
  for (size_t r = begin; r < end; ++r) {
    const float* x = p.x + r * n;
    float* out = p.out + r * n;
    const int64_t t = p.target[r];
    if (t == p.ignore_index) {
      zero_row(out, n);
      continue;
    }
    const float c1 = row_coefficient(p, r);
    const f32v m = v_set1(p.row_max[r]), s = v_set1(p.row_sum[r]), c = v_set1(c1);
    // Read before the row is overwritten: out may be x.
    const float at_target = target_gradient(v_lane0(probability(v_set1(x[t]), m, s)), c1);
    map_out(n, out, [=](size_t i, size_t k) TS_LAMBDA {
      return v_mul(probability(v_load_any(x + i, k), m, s), c);
    });
    put1(out + t, at_target);
  }
}

void nll(const float* x, const int64_t* target, int64_t ignore_index, size_t vocabulary,
         float* loss, size_t rows) {
  for (size_t r = 0; r < rows; ++r) {
    if (target[r] == ignore_index) loss[r] = 0.0f;
    else put1(loss + r, -x[r * vocabulary + static_cast<size_t>(target[r])]);
  }
}

void nll_backward(const CrossEntropyBackward& p, size_t begin, size_t end) {
  for (size_t r = begin; r < end; ++r) {
    float* out = p.out + r * p.vocabulary;
    zero_row(out, p.vocabulary);
    if (p.target[r] != p.ignore_index) put1(out + p.target[r], -row_coefficient(p, r));
  }
}

float loss_sum(const float* x, size_t n, bool divide, float divisor) {
  const float s = sum_row(x, n);
  return canonical_nan(planted(divide ? s / divisor : s));
}

}  // namespace
}  // namespace TS_ISA

namespace isa = TS_ISA;
TS_DEFINE_TABLE(NnTable, nn) = {
    isa::softmax,        isa::log_softmax,   isa::softmax_backward,
    isa::log_softmax_backward, isa::layer_norm, isa::layer_norm_dx,
    isa::layer_norm_dwb, isa::scratch_of,    isa::kColTile,
    isa::cross_entropy, isa::cross_entropy_backward,
    isa::nll,            isa::nll_backward,  isa::loss_sum};

}  // namespace tallystick
