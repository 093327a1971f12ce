// What an optimizer step computes for an element (NUMERICS 11).
#pragma once
#include "tallystick/simd_f32.hpp"

namespace tallystick {
namespace TS_ISA {

// The binary32 scalars of 11.2 and 11.3 in every lane; c is read where gradients are scaled.
struct AdamFactors {
  f32v rest1, beta2, rest2, eps, root_bc2, minus_step;
  f32v decay;  // adamw: factor of p; adam: weight decay, added to the gradient
  f32v c;
};
struct AdamElement { f32v p, m, v; };

template <bool Scaled, bool AddsDecay, bool ScalesParam>
TS_INLINE AdamElement adam_element(const AdamFactors& k, f32v p, f32v g, f32v m0, f32v v0) {
  if (Scaled) g = v_mul(g, k.c);
  if (AddsDecay) g = v_fma(k.decay, p, g);
  const f32v m = v_fma(k.rest1, v_sub(g, m0), m0);
  const f32v v = v_fma(k.beta2, v0, v_mul(v_mul(k.rest2, g), g));
  const f32v q = v_add(v_div(v_sqrt(v), k.root_bc2), k.eps);
  const f32v kept = ScalesParam ? v_mul(p, k.decay) : p;
  return {v_fma(k.minus_step, v_div(m, q), kept), m, v};
}

struct SgdFactors { f32v minus_lr, momentum, undamped, decay, c; };
struct SgdElement { f32v p, buf; };

// buf is read and given with Momentum only.
template <bool Scaled, bool Decays, bool Momentum, bool Nesterov>
TS_INLINE SgdElement sgd_element(const SgdFactors& k, f32v p, f32v g, f32v buf) {
  if (Scaled) g = v_mul(g, k.c);
  if (Decays) g = v_fma(k.decay, p, g);
  if (Momentum) {
    buf = v_fma(k.momentum, buf, v_mul(k.undamped, g));
    g = Nesterov ? v_fma(k.momentum, buf, g) : buf;
  }
  return {v_fma(k.minus_lr, g, p), buf};
}

}  // namespace TS_ISA
}  // namespace tallystick
