// Vector calls of the nn, index and optim tables (NUMERICS 4, 6, 7, 11).
#pragma once
#include <cmath>

#include "families/index.hpp"
#include "families/nn.hpp"
#include "families/optim.hpp"
#include "vector_file.hpp"

namespace vectors {
using namespace tallystick;

// f(operands, out, rows, n) with `dim` last, by copies.
template <class F>
void along(Case& c, const F& f) {
  const Tensor& t = c.in[0];
  const size_t rank = t.shape.size(), total = t.numel();
  if (total == 0) return;
  size_t n = 1, inner = 1;
  if (rank) {
    const int64_t given = c.i("dim");
    const size_t dim = static_cast<size_t>(given < 0 ? given + static_cast<int64_t>(rank) : given);
    n = t.shape[dim];
    for (size_t d = dim + 1; d < rank; ++d) inner *= t.shape[d];
  }
  const auto place = [&](size_t e) {  // row-major position of element e of the rows
    const size_t row = e / n, i = e % n;
    return (row / inner * n + i) * inner + row % inner;
  };
  std::vector<std::vector<float>> rows(c.in.size(), std::vector<float>(total));
  for (size_t k = 0; k < rows.size(); ++k)
    for (size_t e = 0; e < total; ++e) rows[k][e] = c.in[k].f32()[place(e)];
  std::vector<float> out(total);
  f(rows, out.data(), total / n, n);
  for (size_t e = 0; e < total; ++e) c.got[0].f32()[place(e)] = out[e];
}

inline void run_softmax(Case& c, void (*NnTable::*fn)(const float*, float*, size_t, size_t)) {
  return along(c, [&](const auto& in, float* out, size_t rows, size_t n) {
    (TS_DISPATCH(nn).*fn)(in[0].data(), out, rows, n);
  });
}
inline void run_softmax_backward(Case& c, void (*NnTable::*fn)(const float*, const float*, float*,
                                                               size_t, size_t)) {
  return along(c, [&](const auto& in, float* out, size_t rows, size_t n) {
    (TS_DISPATCH(nn).*fn)(in[0].data(), in[1].data(), out, rows, n);
  });
}

inline size_t normal_size(const Case& c) {
  size_t n = 1;
  for (int64_t d : c.list("normalized_shape")) n *= static_cast<size_t>(d);
  return n;
}

inline void run_layer_norm(Case& c) {
  TS_DISPATCH(nn).layer_norm(c.in[0].f32(), c.input(1).f32(), c.input(2).f32(),
                             static_cast<float>(c.f("eps")), c.got[0].f32(), c.got[1].f32(),
                             c.got[2].f32(), c.got[1].numel(), normal_size(c));
}

inline void run_layer_norm_backward(Case& c) {
  const NnTable& table = TS_DISPATCH(nn);
  const LayerNormBackward p = {c.in[0].f32(), c.in[1].f32(), c.in[2].f32(), c.in[3].f32(),
                               c.input(4).f32(), c.in[2].numel(), normal_size(c)};
  const auto out = c.wanted();
  std::vector<float> scratch(table.column_scratch(p.rows) + 1);
  if (out[1] || out[2]) table.layer_norm_dwb(p, out[1], out[2], 0, p.n, scratch.data());
  if (out[0]) table.layer_norm_dx(p, out[0], 0, p.rows);
}

// --- losses ----------------------------------------------------------------------------------------
inline float live_rows(const Case& c, const Tensor& target) {
  int64_t live = 0;
  for (size_t r = 0; r < target.numel(); ++r) live += target.as<int64_t>()[r] != c.i("ignore_index");
  return static_cast<float>(live);
}
inline void reduce_loss(Case& c, const std::vector<float>& rows, size_t n, float live) {
  const std::string& reduction = c.s("reduction");
  if (reduction == "none") std::memcpy(c.got[0].room.data(), rows.data(), n * 4);
  else *c.got[0].f32() = TS_DISPATCH(nn).loss_sum(rows.data(), n, reduction == "mean", live);
}
inline void run_cross_entropy(Case& c) {
  const size_t rows = c.in[0].shape[0];
  std::vector<float> losses(rows + 1);
  const CrossEntropyForward p = {c.in[0].f32(), c.in[1].as<int64_t>(), c.i("ignore_index"),
                                 c.in[0].shape[1], losses.data(), c.got[1].f32(), c.got[2].f32()};
  TS_DISPATCH(nn).cross_entropy(p, 0, rows);
  reduce_loss(c, losses, rows, live_rows(c, c.in[1]));
}
// The gradient of a loss; nll_loss has no maxima and sums of rows, and brings its own count of rows.
inline CrossEntropyBackward loss_backward(Case& c, const float* row_max, const float* row_sum,
                                          float live) {
  const std::string& reduction = c.s("reduction");
  return {c.in[0].f32(), c.in[1].f32(), c.in[2].as<int64_t>(), row_max, row_sum,
          c.i("ignore_index"), c.in[1].shape[1], reduction == "none", live, reduction == "mean",
          c.got[0].f32()};
}
inline void run_cross_entropy_backward(Case& c) {
  TS_DISPATCH(nn).cross_entropy_backward(
      loss_backward(c, c.in[3].f32(), c.in[4].f32(), live_rows(c, c.in[2])), 0, c.in[1].shape[0]);
}
inline void run_nll(Case& c) {
  const size_t rows = c.in[0].shape[0];
  std::vector<float> losses(rows + 1);
  TS_DISPATCH(nn).nll(c.in[0].f32(), c.in[1].as<int64_t>(), c.i("ignore_index"), c.in[0].shape[1],
                      losses.data(), rows);
  const float live = live_rows(c, c.in[1]);
  reduce_loss(c, losses, rows, live);
  *c.got[1].f32() = live;
}
inline void run_nll_backward(Case& c) {
  TS_DISPATCH(nn).nll_backward(loss_backward(c, nullptr, nullptr, *c.in[3].f32()), 0,
                               c.in[1].shape[0]);
}

// --- scatter ---------------------------------------------------------------------------------------
inline void run_embedding(Case& c) {
  TS_DISPATCH(index).embedding(c.in[0].as<uint32_t>(), c.in[1].as<int64_t>(), c.in[0].shape[1],
                               c.got[0].as<uint32_t>(), 0, c.in[1].numel());
}
inline void run_embedding_backward(Case& c) {
  const IndexTable& table = TS_DISPATCH(index);
  const size_t row = c.got[0].shape[1];
  table.fill_zero(c.got[0].f32(), c.got[0].numel());
  table.add_rows(c.in[0].f32(), c.in[1].as<int64_t>(), c.in[1].numel(), row, c.i("padding_idx"),
                 c.got[0].f32(), 0, row);
}
inline void run_index_add(Case& c) {
  const IndexTable& table = TS_DISPATCH(index);
  const size_t dim = c.axis("dim", 0), n = c.in[1].numel();
  size_t outer = 1, inner = 1;
  for (size_t d = 0; d < c.in[0].shape.size(); ++d)
    if (d != dim) (d < dim ? outer : inner) *= c.in[0].shape[d];
  const size_t slab = c.in[0].shape[dim] * inner;
  table.copy(c.in[0].f32(), c.got[0].f32(), c.in[0].numel());
  for (size_t o = 0; o < outer; ++o)
    table.add_rows(c.in[2].f32() + o * n * inner, c.in[1].as<int64_t>(), n, inner, -1,
                   c.got[0].f32() + o * slab, 0, inner);
}

// --- optimizers ------------------------------------------------------------------------------------
inline void run_adam(Case& c, bool decoupled) {
  const double lr = *c.in[4].as<double>(), b1p = *c.in[5].as<double>(), b2p = *c.in[6].as<double>();
  const double beta1 = c.f("beta1"), beta2 = c.f("beta2"), decay = c.f("weight_decay");
  AdamStep s = {};
  s.p = c.in[0].f32(), s.g = c.in[1].f32(), s.m = c.in[2].f32(), s.v = c.in[3].f32();
  s.c = c.input(7).f32();
  s.p_out = c.got[0].f32(), s.m_out = c.got[1].f32(), s.v_out = c.got[2].f32();
  s.rest1 = static_cast<float>(1.0 - beta1);
  s.beta2 = static_cast<float>(beta2), s.rest2 = static_cast<float>(1.0 - beta2);
  s.eps = static_cast<float>(c.f("eps"));
  s.step_size = static_cast<float>(lr / (1.0 - b1p));
  s.root_bc2 = static_cast<float>(std::sqrt(1.0 - b2p));
  s.decay = static_cast<float>(decoupled ? 1.0 - lr * decay : decay);
  s.adds_decay = !decoupled && decay != 0;
  s.scales_param = decoupled;
  TS_DISPATCH(optim).adam(s, 0, c.in[0].numel());
}
inline void run_sgd(Case& c) {
  SgdStep s = {};
  const double decay = c.f("weight_decay");
  s.p = c.in[0].f32(), s.g = c.in[1].f32(), s.buf = c.input(2).f32(), s.c = c.input(4).f32();
  s.p_out = c.got[0].f32(), s.buf_out = c.got.size() > 1 ? c.got[1].f32() : nullptr;
  s.lr = static_cast<float>(*c.in[3].as<double>());
  s.momentum = static_cast<float>(c.f("momentum"));
  s.undamped = static_cast<float>(1.0 - c.f("dampening"));
  s.weight_decay = static_cast<float>(decay);
  s.decays = decay != 0;
  s.nesterov = c.flag("nesterov");
  TS_DISPATCH(optim).sgd(s, 0, c.in[0].numel());
}
inline void run_clip_coef(Case& c) {
  std::vector<float> squares;
  for (const Tensor& t : c.in) squares.push_back(*t.f32());
  float out[2];
  TS_DISPATCH(optim).clip_coef(squares.data(), squares.size(), static_cast<float>(c.f("max_norm")), out);
  *c.got[0].f32() = out[0];
  *c.got[1].f32() = out[1];
}

}  // namespace vectors
