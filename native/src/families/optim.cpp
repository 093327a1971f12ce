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

// A function of its own: inlined where it is called, its loop runs out of registers.
template <class Op, class Factors, size_t Out, class... In>
__attribute__((noinline)) void step(const Factors& given, float* const (&out)[Out], size_t begin,
                                    size_t end, In... in) {
  const Factors factors = given;
  for_lanes(begin, end, [=](size_t i, size_t k) TS_LAMBDA {
    const auto made = Op::f(factors, v_load_any(in + i, k)...);
    for (size_t j = 0; j < Out; ++j) put_any(out[j] + i, made.of[j], k);
  });
}

// The factors are in the order of optimizer.hpp.
template <bool Scaled>
void adam_kind(const AdamStep& s, size_t begin, size_t end) {
  const f32v minus_step = v_set1(-s.step_size), root = v_set1(s.root_bc2), eps = v_set1(s.eps);
  const f32v rest1 = v_set1(s.rest1), beta2 = v_set1(s.beta2), rest2 = v_set1(s.rest2);
  const f32v decay = v_set1(s.decay), c = v_set1(Scaled ? *s.c : 0.0f);
  float* const out[] = {s.p_out, s.m_out, s.v_out};
  if (s.scales_param) {
    const adamw_step_factors k = {minus_step, rest1, c, beta2, rest2, root, eps, decay};
    return step<adamw_step_op<Scaled>>(k, out, begin, end, s.p, s.g, s.m, s.v);
  }
  const adam_step_factors k = {minus_step, rest1, c, decay, beta2, rest2, root, eps};
  if (s.adds_decay) step<adam_step_op<Scaled, false>>(k, out, begin, end, s.p, s.g, s.m, s.v);
  else step<adam_step_op<Scaled, true>>(k, out, begin, end, s.p, s.g, s.m, s.v);
}
void adam(const AdamStep& s, size_t begin, size_t end) {
  if (s.c) adam_kind<true>(s, begin, end);
  else adam_kind<false>(s, begin, end);
}

template <bool Scaled, bool IsPlain>
void sgd_kind(const SgdStep& s, size_t begin, size_t end) {
  const f32v minus_lr = v_set1(-s.lr), c = v_set1(Scaled ? *s.c : 0.0f);
  const f32v decay = v_set1(s.weight_decay);
  if (!s.buf) {
    const sgd_step_momentum_is_0_factors k = {minus_lr, c, decay};
    return step<sgd_step_momentum_is_0_op<Scaled, IsPlain>>(k, {s.p_out}, begin, end, s.p, s.g);
  }
  const sgd_step_factors k = {minus_lr, v_set1(s.momentum), v_set1(s.undamped), c, decay};
  float* const out[] = {s.p_out, s.buf_out};
  if (s.nesterov) step<sgd_step_op<Scaled, IsPlain, true>>(k, out, begin, end, s.p, s.g, s.buf);
  else step<sgd_step_op<Scaled, IsPlain, false>>(k, out, begin, end, s.p, s.g, s.buf);
}
void sgd(const SgdStep& s, size_t begin, size_t end) {
  if (s.c && s.decays) sgd_kind<true, false>(s, begin, end);
  else if (s.c) sgd_kind<true, true>(s, begin, end);
  else if (s.decays) sgd_kind<false, false>(s, begin, end);
  else sgd_kind<false, true>(s, begin, end);
}

void clip_coef(const float* s, size_t n, float max_norm, float* out) {
  const float norm = sqrt1(sum_row(s, n));
  put1(out, clip_coefficient(norm, max_norm));
  put1(out + 1, norm);
}

}  // namespace
}  // namespace TS_ISA

namespace isa = TS_ISA;
TS_DEFINE_TABLE(OptimTable, optim) = {isa::adam, isa::sgd, isa::clip_coef};

}  // namespace tallystick
