// Vector calls of the dot class on the gemm table (NUMERICS 2).
#pragma once
#include "convolution.hpp"
#include "vector_file.hpp"

namespace vectors {
using namespace tallystick;
using Sizes = std::vector<size_t>;

inline GemmOperand strided(const float* data, size_t s_x, size_t s_k) {
  GemmOperand op = {};
  op.data = data;
  op.s_x = static_cast<ptrdiff_t>(s_x);
  op.s_k = static_cast<ptrdiff_t>(s_k);
  return op;
}

inline GemmProblem product(const float* a, const float* b, float* out, size_t m, size_t k, size_t n) {
  GemmProblem p = {};
  p.m = m;
  p.n = n;
  p.k = k;
  p.a = strided(a, k, 1);
  p.b = strided(b, 1, n);
  p.out = out;
  p.ldc = static_cast<ptrdiff_t>(n);
  return p;
}

inline void run_mm(Case& c) {
  const Sizes &a = c.in[0].shape, &b = c.in[1].shape;
  done(TS_DISPATCH(gemm).gemm(
      product(c.in[0].f32(), c.in[1].f32(), c.got[0].f32(), a[0], a[1], b[1]), 1, 0, 0));
}

inline void run_bmm(Case& c) {
  const Sizes &a = c.in[0].shape, &b = c.in[1].shape;
  const GemmProblem p =
      product(c.in[0].f32(), c.in[1].f32(), c.got[0].f32(), a[1], a[2], b[2]);
  done(TS_DISPATCH(gemm).bmm(p, a[0], static_cast<ptrdiff_t>(a[1] * a[2]),
                             static_cast<ptrdiff_t>(b[1] * b[2]),
                             static_cast<ptrdiff_t>(a[1] * b[2])));
}

inline void run_addmm(Case& c) {
  const Sizes &a = c.in[1].shape, &b = c.in[2].shape, &shape = c.in[0].shape;
  GemmProblem p = product(c.in[1].f32(), c.in[2].f32(), c.got[0].f32(), a[0], a[1], b[1]);
  const double alpha = c.f("alpha"), beta = c.f("beta");
  p.ep.scale_d = alpha != 1.0;
  p.ep.alpha = static_cast<float>(alpha);
  if (beta != 0.0) {
    p.ep.c = c.in[0].f32();
    if (!shape.empty()) p.ep.c_cols = shape.back() == 1 ? 0 : 1;
    if (shape.size() == 2) p.ep.c_rows = shape[0] == 1 ? 0 : static_cast<ptrdiff_t>(shape[1]);
    p.ep.scale_c = beta != 1.0;
    p.ep.beta = static_cast<float>(beta);
  }
  p.ep.active = p.ep.scale_d || p.ep.c != nullptr;
  done(TS_DISPATCH(gemm).gemm(p, 1, 0, 0));
}

inline ConvShape conv_of(const Case& c, const Sizes& x, const Sizes& w, const Sizes& y) {
  const auto st = c.pair("stride"), pad = c.pair("padding"), dil = c.pair("dilation");
  return conv_shape(x[0], x[1], w[0], static_cast<size_t>(c.i("groups")),
                    {x[2], x[3], y[2], y[3], w[2], w[3], st[0], st[1], pad[0], pad[1], dil[0],
                     dil[1], 0});
}

inline void run_convolution(Case& c) {
  const Tensor &x = c.in[0], &w = c.in[1], &bias = c.input(2);
  const ConvShape s = conv_of(c, x.shape, w.shape, c.got[0].shape);
  done(convolution_forward(s, x.f32(), w.f32(), bias.f32(), c.got[0].f32()));
}

inline void run_convolution_backward(Case& c) {
  const Tensor &grad = c.in[0], &x = c.in[1], &w = c.in[2];
  const ConvShape s = conv_of(c, x.shape, w.shape, grad.shape);
  const auto out = c.wanted();
  if (out[0]) done(convolution_input_grad(s, grad.f32(), w.f32(), out[0]));
  if (out[1]) done(convolution_weight_grad(s, grad.f32(), x.f32(), out[1]));
  if (out[2]) done(TS_DISPATCH(conv).bias_grad(grad.f32(), s.n, s.o, s.out_plane, out[2]));
}

}  // namespace vectors
