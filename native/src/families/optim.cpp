// Optimizer steps, one copy per instruction set (NUMERICS 11).
#include "families/optim.hpp"

#include "tallystick/nn_elements.hpp"
#include "tallystick/optimizer.hpp"
#include "tallystick/reduce.hpp"

namespace tallystick {
namespace TS_ISA {
namespace {

// step(i, k) for the registers of [begin, end); k lanes of each count.
template <class F>
TS_INLINE void for_lanes(size_t begin, size_t end, const F& step) {
  size_t i = begin;
  for (; i + kF32Lanes <= end; i += kF32Lanes) step(i, kF32Lanes);
  if (i < end) step(i, end - i);
}
TS_INLINE void put_any(float* p, f32v a, size_t k) {
  if (k == kF32Lanes) v_put(p, a);
  else v_put_n(p, a, k);
}

template <bool Scaled, bool AddsDecay, bool ScalesParam>
void adam_range(const AdamStep& s, size_t begin, size_t end) {
  const AdamFactors factors = {v_set1(s.rest1), v_set1(s.beta2), v_set1(s.rest2),
                               v_set1(s.eps), v_set1(s.root_bc2), v_set1(-s.step_size),
                               v_set1(s.decay), v_set1(Scaled ? *s.c : 0.0f)};
  const float *p_in = s.p, *g_in = s.g, *m_in = s.m, *v_in = s.v;
  float *p_out = s.p_out, *m_out = s.m_out, *v_out = s.v_out;
  for_lanes(begin, end, [=](size_t i, size_t k) TS_LAMBDA {
    const AdamElement made = adam_element<Scaled, AddsDecay, ScalesParam>(
        factors, v_load_any(p_in + i, k), v_load_any(g_in + i, k), v_load_any(m_in + i, k),
        v_load_any(v_in + i, k));
    put_any(p_out + i, made.p, k);
    put_any(m_out + i, made.m, k);
    put_any(v_out + i, made.v, k);
  });
}

void adam(const AdamStep& s, size_t begin, size_t end) {
  if (s.scales_param) {
    if (s.c) adam_range<true, false, true>(s, begin, end);
    else adam_range<false, false, true>(s, begin, end);
  } else if (s.adds_decay) {
    if (s.c) adam_range<true, true, false>(s, begin, end);
    else adam_range<false, true, false>(s, begin, end);
  } else {
    if (s.c) adam_range<true, false, false>(s, begin, end);
    else adam_range<false, false, false>(s, begin, end);
  }
}

template <bool Scaled, bool Decays, bool Momentum, bool Nesterov>
void sgd_range(const SgdStep& s, size_t begin, size_t end) {
  const SgdFactors factors = {v_set1(-s.lr), v_set1(s.momentum), v_set1(s.undamped),
                              v_set1(s.weight_decay), v_set1(Scaled ? *s.c : 0.0f)};
  const float *p_in = s.p, *g_in = s.g, *buf_in = s.buf;
  float *p_out = s.p_out, *buf_out = s.buf_out;
  for_lanes(begin, end, [=](size_t i, size_t k) TS_LAMBDA {
    const f32v buf = Momentum ? v_load_any(buf_in + i, k) : v_zero();
    const SgdElement made = sgd_element<Scaled, Decays, Momentum, Nesterov>(
        factors, v_load_any(p_in + i, k), v_load_any(g_in + i, k), buf);
    if (Momentum) put_any(buf_out + i, made.buf, k);
    put_any(p_out + i, made.p, k);
  });
}

template <bool Scaled, bool Decays>
void sgd_kind(const SgdStep& s, size_t begin, size_t end) {
  if (!s.buf) sgd_range<Scaled, Decays, false, false>(s, begin, end);
  else if (s.nesterov) sgd_range<Scaled, Decays, true, true>(s, begin, end);
  else sgd_range<Scaled, Decays, true, false>(s, begin, end);
}

void sgd(const SgdStep& s, size_t begin, size_t end) {
  if (s.c && s.decays) sgd_kind<true, true>(s, begin, end);
  else if (s.c) sgd_kind<true, false>(s, begin, end);
  else if (s.decays) sgd_kind<false, true>(s, begin, end);
  else sgd_kind<false, false>(s, begin, end);
}

void clip_coef(const float* s, size_t n, float max_norm, float* out) {
  const float norm = sqrt1(sum_row(s, n));
  put1(out, clip_coefficient(norm, max_norm));
  put1(out + 1, norm);
}

}  // namespace
}  // namespace TS_ISA

namespace isa = TS_ISA;
extern const OptimTable TS_TABLE(optim);
const OptimTable TS_TABLE(optim) = {isa::adam, isa::sgd, isa::clip_coef};

}  // namespace tallystick
