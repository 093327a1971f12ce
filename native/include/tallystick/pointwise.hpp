// What the pointwise operators compute, on a register of elements (NUMERICS 6.7 to 6.11, 7.4, 8.5, 10).
#pragma once
#include "tallystick/elementary.hpp"
#include "tallystick/simd_f32.hpp"

namespace tallystick {
namespace TS_ISA {

// One struct per operator; p0 and p1 are its parameters in every lane.
#define TS_OP1(name, ...)                                                                \
  struct name##_op {                                                                     \
    TS_INLINE static f32v f(f32v a, [[maybe_unused]] f32v p0, [[maybe_unused]] f32v p1) { \
      __VA_ARGS__                                                                        \
    }                                                                                    \
  };
#define TS_OP2(name, type, ...)                                                  \
  struct name##_op {                                                             \
    TS_INLINE static type f(f32v a, f32v b, [[maybe_unused]] f32v p0) { __VA_ARGS__ } \
  };

TS_INLINE f32v v_one() { return v_set1(1.0f); }

TS_OP1(neg, return v_neg(a);)
TS_OP1(abs, return v_abs(a);)
TS_OP1(reciprocal, return v_div(v_one(), a);)
TS_OP1(sqrt, return v_sqrt(a);)
TS_OP1(rsqrt, return cr_rsqrt(a);)
TS_OP1(square, return v_mul(a, a);)
TS_OP1(cube, return v_mul(v_mul(a, a), a);)
// NUMERICS 6.11: a NaN is kept because it is not <= 0, and -0 becomes +0.
TS_OP1(relu, return v_blend(v_le(a, v_zero()), v_zero(), a);)
TS_OP1(silu, return v_mul(a, cr_sigmoid(a));)
TS_OP1(leaky_relu, return v_blend(v_gt(a, v_zero()), a, v_mul(a, p0));)
TS_OP1(clamp_min, return v_max(a, p0);)
TS_OP1(clamp_max, return v_min(a, p1);)
TS_OP1(clamp, return v_min(v_max(a, p0), p1);)

TS_OP2(add, f32v, return v_add(a, b);)
TS_OP2(sub, f32v, return v_sub(a, b);)
TS_OP2(mul, f32v, return v_mul(a, b);)
TS_OP2(div, f32v, return v_div(a, b);)
// NUMERICS 10.2: one rounding.
TS_OP2(add_alpha, f32v, return v_fma(p0, b, a);)
TS_OP2(sub_alpha, f32v, return v_fma(v_neg(p0), b, a);)
TS_OP2(maximum, f32v, return v_max(a, b);)
TS_OP2(minimum, f32v, return v_min(a, b);)
// a is the gradient in the backward operators.
TS_OP2(threshold_backward, f32v, return v_blend(v_le(b, p0), v_zero(), a);)
TS_OP2(silu_backward, f32v, const f32v s = cr_sigmoid(b);
       return v_mul(a, v_mul(s, v_fma(b, v_sub(v_one(), s), v_one())));)
TS_OP2(tanh_backward, f32v, return v_mul(a, v_fma(v_neg(b), b, v_one()));)
TS_OP2(sigmoid_backward, f32v, return v_mul(a, v_mul(b, v_sub(v_one(), b)));)
TS_OP2(squared_difference, f32v, const f32v d = v_sub(a, b); return v_mul(d, d);)
TS_OP2(eq, f32m, return v_eq(a, b);)
TS_OP2(ne, f32m, return v_ne(a, b);)
TS_OP2(lt, f32m, return v_lt(a, b);)
TS_OP2(le, f32m, return v_le(a, b);)
TS_OP2(gt, f32m, return v_gt(a, b);)
TS_OP2(ge, f32m, return v_ge(a, b);)
// NUMERICS 6.7 to 6.10.
constexpr uint32_t kGeluC1 = 0x3f3504f3u, kGeluC2 = 0x3ecc422au, kGeluC3 = 0x3f4c422au,
                   kGeluC4 = 0x3d372713u, kGeluC5 = 0x3e095d4fu;
TS_INLINE f32v gelu_u(f32v x) {
  return v_mul(v_bits(kGeluC3), v_fma(v_mul(v_mul(x, x), x), v_bits(kGeluC4), x));
}
TS_OP1(gelu_erf, const f32v e = cr_erf(v_mul(a, v_bits(kGeluC1)));
       return v_mul(v_mul(a, v_set1(0.5f)), v_add(v_one(), e));)
TS_OP1(gelu_tanh, return v_mul(v_mul(v_set1(0.5f), a), v_add(v_one(), cr_tanh(gelu_u(a))));)
TS_OP2(gelu_erf_backward, f32v, const f32v e = cr_erf(v_mul(b, v_bits(kGeluC1)));
       const f32v c = v_mul(v_set1(0.5f), v_add(v_one(), e));
       const f32v p = v_mul(cr_exp(v_mul(v_mul(b, b), v_set1(-0.5f))), v_bits(kGeluC2));
       return v_mul(a, v_fma(b, p, c));)
TS_OP2(gelu_tanh_backward, f32v, const f32v half = v_set1(0.5f);
       const f32v t = cr_tanh(gelu_u(b));
       const f32v v = v_mul(v_bits(kGeluC3), v_fma(v_mul(b, b), v_bits(kGeluC5), v_one()));
       const f32v left = v_mul(half, v_add(v_one(), t));
       const f32v right = v_mul(v_mul(v_mul(half, b), v_fma(v_neg(t), t, v_one())), v);
       return v_mul(a, v_add(left, right));)
// NUMERICS 7.4: (2 d) g, over n (p0) for `mean`.
struct mse_backward_op {
  TS_INLINE static f32v f(f32v g, f32v x, f32v y, f32v) {
    return v_mul(v_mul(v_set1(2.0f), v_sub(x, y)), g);
  }
};
struct mse_backward_mean_op {
  TS_INLINE static f32v f(f32v g, f32v x, f32v y, f32v p0) {
    return v_div(v_mul(v_mul(v_set1(2.0f), v_sub(x, y)), g), p0);
  }
};
// NUMERICS 8.5.
TS_INLINE f32v mask_scale(f32v a, f32m kept, f32v scale) {
  return v_blend(kept, v_mul(a, scale), v_zero());
}

}  // namespace TS_ISA
}  // namespace tallystick
