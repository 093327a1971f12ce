// Optimizer steps of one parameter (NUMERICS 11.1 to 11.4). What changes from step to step is read
// from the device's memory: the learning rate, the powers of beta and the coefficient.
#include "point.hpp"

#include "tallystick/optimizer.hpp"

namespace tallystick {
namespace TS_ISA {

struct Adam {
  int64_t count, fours;
  const float *p, *g, *m, *v;
  const float* c;  // null where gradients are not scaled
  float *p_out, *m_out, *v_out;
  const double *lr, *beta1_power, *beta2_power;
  F64 beta1, beta2, eps, weight_decay;
};
struct Sgd {
  int64_t count, fours;
  const float *p, *g, *buf, *c;
  float *p_out, *buf_out;
  const double* lr;
  F64 momentum, dampening, weight_decay;
};
struct BetaPower {
  const double* power;
  double* out;
  F64 beta;
};

TS_INLINE float rn32(double x) { return static_cast<float>(x); }

// Binary64, each operation rounded, then RN32.
template <bool Decoupled>
TS_INLINE AdamFactors adam_factors(const Adam& p) {
  const double lr = *p.lr, weight_decay = p.weight_decay.value;
  return {rn32(1.0 - p.beta1.value),
          rn32(p.beta2.value),
          rn32(1.0 - p.beta2.value),
          rn32(p.eps.value),
          rn32(sqrt1(1.0 - *p.beta2_power)),
          v_neg(rn32(lr / (1.0 - *p.beta1_power))),
          rn32(Decoupled ? 1.0 - lr * weight_decay : weight_decay),
          p.c ? *p.c : 0.0f};
}
TS_INLINE SgdFactors sgd_factors(const Sgd& p) {
  return {v_neg(rn32(*p.lr)), rn32(p.momentum.value), rn32(1.0 - p.dampening.value),
          rn32(p.weight_decay.value), p.c ? *p.c : 0.0f};
}

// One thread of a block computes the factors for all: binary64 division is slow on most devices.
template <class Factors, class F>
TS_INLINE Factors block_factors(Factors* shared, const F& make) {
  if (thread_index() == 0) *shared = make();
  block_barrier();
  return *shared;
}

// step.at<4>(i) for four neighbours, step.at<1>(i) for single elements. Steps are structs: NVRTC takes
// no generic lambda in device code.
template <class Step>
TS_INLINE void for_elements(int64_t count, bool fours, const Step& step) {
  const int64_t whole = fours ? count - count % 4 : 0;
  for (int64_t i = 4 * first_item(); i < whole; i += 4 * item_step()) step.template at<4>(i);
  for (int64_t i = whole + first_item(); i < count; i += item_step()) step.template at<1>(i);
}

template <bool Scaled, bool AddsDecay, bool ScalesParam>
struct AdamWork {
  const Adam& s;
  const AdamFactors& factors;
  template <int W>
  TS_INLINE void at(int64_t i) const {
    Pack<float, W> p = take<W>(s.p + i), m = take<W>(s.m + i), v = take<W>(s.v + i);
    const Pack<float, W> g = take<W>(s.g + i);
    TS_UNROLL
    for (int j = 0; j < W; ++j) {
      const AdamElement made = adam_element<Scaled, AddsDecay, ScalesParam>(
          factors, p.of[j], g.of[j], m.of[j], v.of[j]);
      p.of[j] = finished(made.p);
      m.of[j] = finished(made.m);
      v.of[j] = finished(made.v);
    }
    give<W>(s.p_out + i, p);
    give<W>(s.m_out + i, m);
    give<W>(s.v_out + i, v);
  }
};
template <bool Scaled, bool AddsDecay, bool ScalesParam>
TS_INLINE void adam(const Adam& s, const AdamFactors& factors) {
  for_elements(s.count, s.fours != 0, AdamWork<Scaled, AddsDecay, ScalesParam>{s, factors});
}

template <bool Scaled, bool Decays, bool Momentum, bool Nesterov>
struct SgdWork {
  const Sgd& s;
  const SgdFactors& factors;
  template <int W>
  TS_INLINE void at(int64_t i) const {
    Pack<float, W> p = take<W>(s.p + i), buf = p;
    const Pack<float, W> g = take<W>(s.g + i);
    if (Momentum) buf = take<W>(s.buf + i);
    TS_UNROLL
    for (int j = 0; j < W; ++j) {
      const SgdElement made = sgd_element<Scaled, Decays, Momentum, Nesterov>(
          factors, p.of[j], g.of[j], buf.of[j]);
      p.of[j] = finished(made.p);
      buf.of[j] = finished(made.buf);
    }
    give<W>(s.p_out + i, p);
    if (Momentum) give<W>(s.buf_out + i, buf);
  }
};
template <bool Scaled, bool Decays, bool Momentum, bool Nesterov>
TS_INLINE void sgd(const Sgd& s, const SgdFactors& factors) {
  for_elements(s.count, s.fours != 0, SgdWork<Scaled, Decays, Momentum, Nesterov>{s, factors});
}

#define TS_ADAM(name, scaled, adds, decoupled)                                          \
  TS_KERNEL(optimizer_##name, Adam, 256) {                                              \
    TS_SHARED(AdamFactors, factors, 1);                                                 \
    adam<scaled, adds, decoupled>(                                                      \
        p, block_factors(factors, [&] { return adam_factors<decoupled>(p); }));         \
  }
TS_ADAM(adamw, false, false, true)
TS_ADAM(adamw_scaled, true, false, true)
TS_ADAM(adam, false, false, false)
TS_ADAM(adam_scaled, true, false, false)
TS_ADAM(adam_decays, false, true, false)
TS_ADAM(adam_decays_scaled, true, true, false)

#define TS_SGD_KIND(name, scaled, decays, momentum, nesterov)                           \
  TS_KERNEL(optimizer_##name, Sgd, 256) {                                               \
    TS_SHARED(SgdFactors, factors, 1);                                                  \
    sgd<scaled, decays, momentum, nesterov>(                                            \
        p, block_factors(factors, [&] { return sgd_factors(p); }));                     \
  }
#define TS_SGD(name, momentum, nesterov)                      \
  TS_SGD_KIND(name, false, false, momentum, nesterov)         \
  TS_SGD_KIND(name##_scaled, true, false, momentum, nesterov) \
  TS_SGD_KIND(name##_decays, false, true, momentum, nesterov) \
  TS_SGD_KIND(name##_decays_scaled, true, true, momentum, nesterov)
TS_SGD(sgd, false, false)
TS_SGD(sgd_momentum, true, false)
TS_SGD(sgd_nesterov, true, true)

TS_KERNEL(optimizer_beta_power, BetaPower, 32) {
  const double power = *p.power * p.beta.value;
  if (first_item() == 0) *p.out = power == power ? power : bits_double(0x7ff8000000000000ull);
}

}  // namespace TS_ISA
}  // namespace tallystick
