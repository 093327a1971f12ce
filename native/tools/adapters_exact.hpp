// Vector calls of the dot class under `exact/1` on the exact table (NUMERICS 17). What is not finite
// comes from the calls of adapters_dot.hpp.
#pragma once
#include <algorithm>
#include <functional>

#include "adapters_dot.hpp"
#include "families/exact.hpp"

namespace vectors {

// One operand of a product: rows of terms, and the groups that rows belong to. `step` is the
// distance at which the kernels find adjacent elements.
struct ExactSide {
  size_t rows;
  ptrdiff_t step;
  std::function<float(size_t row, size_t k)> term;
  // Calls add(x) for every member of the group of `row` in outer values [u0, u1) (17.3).
  std::function<void(size_t row, size_t u0, size_t u1, const std::function<void(float)>& add)> group;
};

constexpr uint32_t kNotFinite = 0x7f800000u;  // magnitudes from here on

inline size_t block_length(int width) { return width == 8 ? 256 : width == 15 ? 1024 : 2048; }

inline std::vector<float> spread(const std::vector<float>& x, ptrdiff_t step) {
  std::vector<float> out(x.size() * static_cast<size_t>(step) + 1, 1e30f);  // between: not read
  for (size_t i = 0; i < x.size(); ++i) out[i * static_cast<size_t>(step)] = x[i];
  return out;
}

// One segment of a side: magnitudes, and integers of the terms [k0, k1).
struct ExactSegment {
  std::vector<uint32_t> mu;
  std::vector<float> m;

  ExactSegment(const ExactSide& side, size_t u0, size_t u1, size_t inner, int width)
      : mu(side.rows), m(side.rows * (u1 - u0) * inner) {
    const auto& table = TS_DISPATCH(exact);
    const size_t n = (u1 - u0) * inner;
    for (size_t r = 0; r < side.rows; ++r) {
      std::vector<float> members, terms(n);
      side.group(r, u0, u1, [&](float x) { members.push_back(x); });
      mu[r] = table.most(spread(members, side.step).data(), members.size(), side.step);
      for (size_t k = 0; k < n; ++k) terms[k] = side.term(r, u0 * inner + k);
      table.integers(spread(terms, side.step).data(), n, side.step, mu[r], width, m.data() + r * n);
    }
  }

  // The digits of the integers [begin, begin + n) of every row, `row` of them each segment-wide.
  std::vector<int16_t> digits(size_t begin, size_t n, size_t padded, int count) const {
    const size_t length = m.size() / mu.size();
    // What the kernel leaves unwritten would show.
    std::vector<int16_t> out(mu.size() * static_cast<size_t>(count) * padded + 1, 0x2a);
    for (size_t r = 0; r < mu.size(); ++r)
      TS_DISPATCH(exact).digits(m.data() + r * length + begin, n, padded, count,
                                out.data() + r * static_cast<size_t>(count) * padded);
    return out;
  }
};

// out(i, j) = DOT of row i of a and row j of b (17.6), where all of its groups are finite (17.7).
inline void exact_dots(const ExactSide& a, const ExactSide& b, size_t outer, size_t inner, int width,
                       const std::function<float&(size_t, size_t)>& out) {
  if (a.rows == 0 || b.rows == 0) return;
  const auto& table = TS_DISPATCH(exact);
  const size_t longest = block_length(width), size = a.rows * b.rows;
  const size_t each = std::max<size_t>(1, longest / std::max<size_t>(1, inner));
  const int count = width == 8 ? 1 : width == 15 ? 2 : 3;
  std::vector<double> total(size, 0.0), w(size);
  std::vector<bool> odd_a(a.rows), odd_b(b.rows);
  bool first = true;
  for (size_t u0 = 0; u0 < outer; u0 += each) {
    const size_t u1 = std::min(outer, u0 + each), terms = (u1 - u0) * inner;
    const ExactSegment left(a, u0, u1, inner, width), right(b, u0, u1, inner, width);
    for (size_t i = 0; i < a.rows; ++i) odd_a[i] = odd_a[i] || left.mu[i] >= kNotFinite;
    for (size_t j = 0; j < b.rows; ++j) odd_b[j] = odd_b[j] || right.mu[j] >= kNotFinite;
    for (size_t begin = 0; begin < terms; begin += longest) {
      const size_t n = std::min(longest, terms - begin);
      const size_t padded = (n + kDigitPad - 1) / kDigitPad * kDigitPad;
      table.products(left.digits(begin, n, padded, count).data(), a.rows,
                     right.digits(begin, n, padded, count).data(), b.rows, padded, count, w.data(),
                     b.rows);
      for (size_t i = 0; i < a.rows; ++i)
        table.add(w.data() + i * b.rows, left.mu[i], right.mu.data(), b.rows, width, first,
                  total.data() + i * b.rows);
      first = false;
    }
  }
  std::vector<float> rounded(size);
  table.round(total.data(), size, rounded.data());
  for (size_t i = 0; i < a.rows; ++i)
    for (size_t j = 0; j < b.rows; ++j)
      if (!odd_a[i] && !odd_b[j]) out(i, j) = rounded[i * b.rows + j];
}

// --- matrix products ------------------------------------------------------------------------------
// x's rows are contiguous (s_k = 1) or columns of a matrix.
inline ExactSide lines(const float* x, size_t rows, size_t s_x, size_t s_k, ptrdiff_t step) {
  const auto term = [=](size_t r, size_t k) { return x[r * s_x + k * s_k]; };
  return {rows, step, term, [=](size_t r, size_t u0, size_t u1, const auto& add) {
            for (size_t u = u0; u < u1; ++u) add(term(r, u));
          }};
}

inline void exact_matrix(const float* a, const float* b, float* out, size_t m, size_t k, size_t n,
                         int width) {
  exact_dots(lines(a, m, k, 1, 1), lines(b, n, 1, n, 3), k, 1, width,
             [=](size_t i, size_t j) -> float& { return out[i * n + j]; });
}

inline void exact_mm(Case& c) {
  run_mm(c);
  const Sizes &a = c.in[0].shape, &b = c.in[1].shape;
  exact_matrix(c.in[0].f32(), c.in[1].f32(), c.got[0].f32(), a[0], a[1], b[1], c.width);
}

inline void exact_bmm(Case& c) {
  run_bmm(c);
  const Sizes &a = c.in[0].shape, &b = c.in[1].shape;
  for (size_t g = 0; g < a[0]; ++g)
    exact_matrix(c.in[0].f32() + g * a[1] * a[2], c.in[1].f32() + g * b[1] * b[2],
                 c.got[0].f32() + g * a[1] * b[2], a[1], a[2], b[2], c.width);
}

inline float canonical(float x) {
  constexpr uint32_t nan = 0x7fc00000u;
  if (x != x) std::memcpy(&x, &nan, 4);
  return x;
}

inline void exact_addmm(Case& c) {
  const Sizes &a = c.in[1].shape, &b = c.in[2].shape, &shape = c.in[0].shape;
  const size_t m = a[0], n = b[1];
  float* out = c.got[0].f32();
  done(TS_DISPATCH(gemm).gemm(product(c.in[1].f32(), c.in[2].f32(), out, m, a[1], n), 1, 0, 0));
  exact_matrix(c.in[1].f32(), c.in[2].f32(), out, m, a[1], n, c.width);
  const double alpha = c.f("alpha"), beta = c.f("beta");
  const size_t s_col = shape.empty() || shape.back() == 1 ? 0 : 1;
  const size_t s_row = shape.size() < 2 || shape[0] == 1 ? 0 : shape[1];
  for (size_t i = 0; i < m; ++i)
    for (size_t j = 0; j < n; ++j) {
      float& d = out[i * n + j];
      if (alpha != 1.0) d = static_cast<float>(alpha) * d;
      if (beta != 0.0) {
        const float x = c.in[0].f32()[i * s_row + j * s_col];
        d = d + (beta == 1.0 ? x : static_cast<float>(beta) * x);
      }
      d = canonical(d);
    }
}

// --- convolutions ---------------------------------------------------------------------------------
// Adds every element of planes first, first + stride, ... (`count` of them).
inline void planes(const float* x, size_t first, size_t stride, size_t count, size_t plane,
                   const std::function<void(float)>& add) {
  for (size_t p = 0; p < count; ++p)
    for (size_t i = 0; i < plane; ++i) add(x[(first + p * stride) * plane + i]);
}

inline float inside(const float* plane, ptrdiff_t y, ptrdiff_t x, size_t h, size_t w) {
  const bool in = y >= 0 && x >= 0 && y < static_cast<ptrdiff_t>(h) && x < static_cast<ptrdiff_t>(w);
  return in ? plane[static_cast<size_t>(y) * w + static_cast<size_t>(x)] : 0.0f;
}

inline ptrdiff_t at(size_t i) { return static_cast<ptrdiff_t>(i); }

inline void exact_convolution(Case& c) {
  const Tensor &x = c.in[0], &w = c.in[1], &bias = c.input(2);
  const ConvShape s = conv_of(c, x.shape, w.shape, c.got[0].shape);
  const auto st = c.pair("stride"), pad = c.pair("padding"), dil = c.pair("dilation");
  float* out = c.got[0].f32();
  done(convolution_forward(s, x.f32(), w.f32(), nullptr, out));
  const size_t h = x.shape[2], v = x.shape[3], kw = w.shape[3], ow = c.got[0].shape[3];
  for (size_t n = 0; n < s.n; ++n)
    for (size_t g = 0; g < s.groups; ++g) {
      const float *image = x.f32() + (n * s.c + g * s.cg) * s.in_plane, *own = w.f32() + g * s.og * s.cg * s.taps;
      const ExactSide weight = {s.og, 1, [=](size_t o, size_t k) { return own[o * s.cg * s.taps + k]; },
                                [=](size_t o, size_t u0, size_t u1, const auto& add) {
                                  planes(own, o * s.cg + u0, 1, u1 - u0, s.taps, add);
                                }};
      const ExactSide seen = {s.out_plane, 3,
                              [=](size_t p, size_t k) {
                                const size_t i = k % s.taps / kw, j = k % s.taps % kw;
                                return inside(image + k / s.taps * s.in_plane, at(p / ow) * st[0] - pad[0] + at(i) * dil[0],
                                              at(p % ow) * st[1] - pad[1] + at(j) * dil[1], h, v);
                              },
                              [=](size_t, size_t u0, size_t u1, const auto& add) {
                                planes(image, u0, 1, u1 - u0, s.in_plane, add);
                              }};
      float* to = out + (n * s.o + g * s.og) * s.out_plane;
      exact_dots(weight, seen, s.cg, s.taps, c.width,
                 [=](size_t o, size_t p) -> float& { return to[o * s.out_plane + p]; });
    }
  for (size_t i = 0; bias.present && i < c.got[0].numel(); ++i)
    out[i] = canonical(out[i] + bias.f32()[i / s.out_plane % s.o]);
}

inline void exact_input_grad(const Case& c, const ConvShape& s, float* out) {
  const Tensor &grad = c.in[0], &x = c.in[1], &w = c.in[2];
  const auto st = c.pair("stride"), pad = c.pair("padding"), dil = c.pair("dilation");
  const size_t v = x.shape[3], kw = w.shape[3], oh = grad.shape[2], ow = grad.shape[3];
  for (size_t n = 0; n < s.n; ++n)
    for (size_t g = 0; g < s.groups; ++g) {
      const float* image = grad.f32() + (n * s.o + g * s.og) * s.out_plane;
      const float* own = w.f32() + g * s.og * s.cg * s.taps;
      const ExactSide weight = {
          s.cg, 1,
          [=](size_t q, size_t k) { return own[(k / s.taps * s.cg + q) * s.taps + k % s.taps]; },
          [=](size_t q, size_t u0, size_t u1, const auto& add) {
            planes(own, u0 * s.cg + q, s.cg, u1 - u0, s.taps, add);
          }};
      const ExactSide seen = {
          s.in_plane, 3,
          [=](size_t p, size_t k) {
            const ptrdiff_t i = at(k % s.taps / kw), j = at(k % s.taps % kw);
            const ptrdiff_t row = at(p / v) + pad[0] - i * dil[0], col = at(p % v) + pad[1] - j * dil[1];
            if (row % st[0] != 0 || col % st[1] != 0) return 0.0f;
            return inside(image + k / s.taps * s.out_plane, row / st[0], col / st[1], oh, ow);
          },
          [=](size_t, size_t u0, size_t u1, const auto& add) {
            planes(image, u0, 1, u1 - u0, s.out_plane, add);
          }};
      float* to = out + (n * s.c + g * s.cg) * s.in_plane;
      exact_dots(weight, seen, s.og, s.taps, c.width,
                 [=](size_t q, size_t p) -> float& { return to[q * s.in_plane + p]; });
    }
}

inline void exact_weight_grad(const Case& c, const ConvShape& s, float* out) {
  const Tensor &grad = c.in[0], &x = c.in[1], &w = c.in[2];
  const auto st = c.pair("stride"), pad = c.pair("padding"), dil = c.pair("dilation");
  const size_t h = x.shape[2], v = x.shape[3], kw = w.shape[3], ow = grad.shape[3];
  for (size_t g = 0; g < s.groups; ++g) {
    const float *gradient = grad.f32(), *image = x.f32();
    const ExactSide left = {
        s.og, 1,
        [=](size_t o, size_t k) {
          return gradient[(k / s.out_plane * s.o + g * s.og + o) * s.out_plane + k % s.out_plane];
        },
        [=](size_t o, size_t u0, size_t u1, const auto& add) {
          planes(gradient, u0 * s.o + g * s.og + o, s.o, u1 - u0, s.out_plane, add);
        }};
    const ExactSide right = {
        s.cg * s.taps, 3,
        [=](size_t r, size_t k) {
          const ptrdiff_t i = at(r % s.taps / kw), j = at(r % s.taps % kw);
          const ptrdiff_t y = at(k % s.out_plane / ow), z = at(k % s.out_plane % ow);
          const float* plane = image + (k / s.out_plane * s.c + g * s.cg + r / s.taps) * s.in_plane;
          return inside(plane, y * st[0] - pad[0] + i * dil[0], z * st[1] - pad[1] + j * dil[1], h, v);
        },
        [=](size_t r, size_t u0, size_t u1, const auto& add) {
          planes(image, u0 * s.c + g * s.cg + r / s.taps, s.c, u1 - u0, s.in_plane, add);
        }};
    float* to = out + g * s.og * s.cg * s.taps;
    exact_dots(left, right, s.n, s.out_plane, c.width,
               [=](size_t o, size_t r) -> float& { return to[o * s.cg * s.taps + r]; });
  }
}

inline void exact_convolution_backward(Case& c) {
  run_convolution_backward(c);
  const ConvShape s = conv_of(c, c.in[1].shape, c.in[2].shape, c.in[0].shape);
  const auto out = c.wanted();
  if (out[0]) exact_input_grad(c, s, out[0]);
  if (out[1]) exact_weight_grad(c, s, out[1]);
}

}  // namespace vectors
