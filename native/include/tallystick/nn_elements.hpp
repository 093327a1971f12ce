// What softmax, the normalisations and the losses compute on a register of elements, once their sums
// are known (NUMERICS 6.1 - 6.6, 6.12 - 6.14, 7).
#pragma once
#include "tallystick/elementary.hpp"
#include "tallystick/simd_f32.hpp"

namespace tallystick::TS_ISA {

// --- softmax (6.1 - 6.4), losses (7.1 - 7.3) -----------------------------------------------------
TS_INLINE f32v exp_below(f32v x, f32v m) { return cr_exp(v_sub(x, m)); }
TS_INLINE f32v softmax_of(f32v e, f32v s) { return v_div(e, s); }
TS_INLINE f32v log_softmax_of(f32v x, f32v m, f32v l) { return v_sub(v_sub(x, m), l); }
TS_INLINE f32v softmax_gradient(f32v g, f32v y, f32v s) { return v_mul(y, v_sub(g, s)); }
TS_INLINE f32v log_softmax_gradient(f32v g, f32v y, f32v s) {
  return v_sub(g, v_mul(cr_exp(y), s));
}
TS_INLINE f32v probability(f32v x, f32v m, f32v s) { return softmax_of(exp_below(x, m), s); }
// The gradient of cross-entropy at the target, from its probability and the row's coefficient.
TS_INLINE float target_gradient(float p, float c) { return fma1(p, c, -c); }
TS_INLINE float cross_entropy_loss(float log_s, float x_t, float m) { return log_s - (x_t - m); }

// --- normalisation (6.5, 6.6, 6.12 - 6.14) -------------------------------------------------------
TS_INLINE f32v normalised(f32v x, f32v mean, f32v rstd) { return v_mul(v_sub(x, mean), rstd); }

// h times weight plus bias, where they are present (6.5).
template <bool W, bool B>
TS_INLINE f32v affine(f32v h, f32v w, f32v b) {
  if (W && B) return v_fma(h, w, b);
  if (W) return v_mul(h, w);
  if (B) return v_add(h, b);
  return h;
}

TS_INLINE f32v layer_norm_gradient(f32v k, f32v h, f32v s1, f32v s2, f32v rstd) {
  return v_mul(v_sub(v_sub(k, s1), v_mul(h, s2)), rstd);
}
TS_INLINE f32v batch_norm_gradient(f32v g, f32v h, f32v s1, f32v s2, f32v r) {
  return v_mul(v_fma(v_neg(h), s2, v_sub(g, s1)), r);
}
// q: the sum of squared deviations; binary64 throughout (6.12).
TS_INLINE float batch_norm_rstd(double q, double count, double eps) {
  return static_cast<float>(1.0 / sqrt1(q / count + eps));
}
TS_INLINE float running_statistic(float old, float now, float momentum) {
  return fma1(momentum, now - old, old);
}

// --- clip_coef (11.6) ----------------------------------------------------------------------------
TS_INLINE float clip_coefficient(float norm, float max_norm) {
  return min1(max_norm / (norm + 1e-6f), 1.0f);
}

}  // namespace tallystick::TS_ISA
