// What the pointwise operators compute on a register of elements, from the operators' forms.
// Made by native/tools/render_pointwise.py; do not edit.
#pragma once
#include "tallystick/elementary.hpp"
#include "tallystick/pointwise_loops.hpp"
#include "tallystick/simd_f32.hpp"

namespace tallystick::TS_ISA {

struct abs_op {  // aten.abs, NUMERICS 10.3
  TS_INLINE static f32v f(f32v x, f32v, f32v) {
    return v_abs(x);
  }
};

struct add_op {  // aten.add.Tensor, NUMERICS 10.2
  TS_INLINE static f32v f(f32v a, f32v b, f32v) {
    return v_add(a, b);
  }
};

struct add_alpha_op {  // aten.add.Tensor, NUMERICS 10.2
  TS_INLINE static f32v f(f32v a, f32v b, f32v alpha) {
    return v_fma(alpha, b, a);
  }
};

struct clamp_max_op {  // aten.clamp, NUMERICS 10.4
  TS_INLINE static f32v f(f32v x, f32v max, f32v) {
    return v_min(x, max);
  }
};

struct clamp_min_op {  // aten.clamp, NUMERICS 10.4
  TS_INLINE static f32v f(f32v x, f32v min, f32v) {
    return v_max(x, min);
  }
};

struct clamp_min_max_op {  // aten.clamp, NUMERICS 10.4
  TS_INLINE static f32v f(f32v x, f32v min, f32v max) {
    return v_min(v_max(x, min), max);
  }
};

struct div_op {  // aten.div.Tensor, NUMERICS 10.2
  TS_INLINE static f32v f(f32v a, f32v b, f32v) {
    return v_div(a, b);
  }
};

struct eq_op {  // aten.eq.Tensor, NUMERICS 10.5
  TS_INLINE static f32m f(f32v a, f32v b, f32v) {
    return v_eq(a, b);
  }
};

struct ge_op {  // aten.ge.Tensor, NUMERICS 10.5
  TS_INLINE static f32m f(f32v a, f32v b, f32v) {
    return v_ge(a, b);
  }
};

struct gelu_op {  // aten.gelu, NUMERICS 6.7, 6.9
  TS_INLINE static f32v f(f32v x, f32v, f32v) {
    return v_mul(v_mul(x, v_set1(0.5f)), v_add(v_set1(1.0f), cr_erf(v_mul(x, v_bits(0x3f3504f3u)))));
  }
};

struct gelu_backward_op {  // aten.gelu_backward, NUMERICS 6.8, 6.10
  TS_INLINE static f32v f(f32v grad, f32v x, f32v) {
    const f32v v0 = v_mul(cr_exp(v_mul(v_mul(x, x), v_set1(-0.5f))), v_bits(0x3ecc422au));
    const f32v v1 = v_mul(v_set1(0.5f), v_add(v_set1(1.0f), cr_erf(v_mul(x, v_bits(0x3f3504f3u)))));
    return v_mul(grad, v_fma(x, v0, v1));
  }
};

struct gelu_backward_tanh_op {  // aten.gelu_backward, NUMERICS 6.8, 6.10
  TS_INLINE static f32v f(f32v grad, f32v x, f32v) {
    const f32v v0 = v_mul(x, x);
    const f32v v1 = v_mul(v_bits(0x3f4c422au), v_fma(v_mul(v0, x), v_bits(0x3d372713u), x));
    const f32v v2 = cr_tanh(v1);
    const f32v v3 = v_mul(v_mul(v_set1(0.5f), x), v_fma(v_neg(v2), v2, v_set1(1.0f)));
    const f32v v4 = v_mul(v_bits(0x3f4c422au), v_fma(v0, v_bits(0x3e095d4fu), v_set1(1.0f)));
    const f32v v5 = v_add(v_mul(v_set1(0.5f), v_add(v_set1(1.0f), v2)), v_mul(v3, v4));
    return v_mul(grad, v5);
  }
};

struct gelu_tanh_op {  // aten.gelu, NUMERICS 6.7, 6.9
  TS_INLINE static f32v f(f32v x, f32v, f32v) {
    const f32v v0 = v_mul(v_bits(0x3f4c422au), v_fma(v_mul(v_mul(x, x), x), v_bits(0x3d372713u), x));
    return v_mul(v_mul(x, v_set1(0.5f)), v_add(v_set1(1.0f), cr_tanh(v0)));
  }
};

struct gt_op {  // aten.gt.Tensor, NUMERICS 10.5
  TS_INLINE static f32m f(f32v a, f32v b, f32v) {
    return v_gt(a, b);
  }
};

struct le_op {  // aten.le.Tensor, NUMERICS 10.5
  TS_INLINE static f32m f(f32v a, f32v b, f32v) {
    return v_le(a, b);
  }
};

struct leaky_relu_op {  // aten.leaky_relu, NUMERICS 6.11
  TS_INLINE static f32v f(f32v x, f32v negative_slope, f32v) {
    return v_blend(v_gt(x, v_zero()), x, v_mul(x, negative_slope));
  }
};

struct lt_op {  // aten.lt.Tensor, NUMERICS 10.5
  TS_INLINE static f32m f(f32v a, f32v b, f32v) {
    return v_lt(a, b);
  }
};

struct mask_scale_op {  // tallystick.mask_scale, NUMERICS 8.5
  TS_INLINE static f32v f(f32v x, f32m mask, f32v scale) {
    return v_blend(mask, v_mul(x, scale), v_zero());
  }
};

struct maximum_op {  // aten.maximum, NUMERICS 10.4
  TS_INLINE static f32v f(f32v a, f32v b, f32v) {
    return v_max(a, b);
  }
};

struct minimum_op {  // aten.minimum, NUMERICS 10.4
  TS_INLINE static f32v f(f32v a, f32v b, f32v) {
    return v_min(a, b);
  }
};

struct mse_loss_op {  // aten.mse_loss, NUMERICS 7.4
  TS_INLINE static f32v f(f32v x, f32v y, f32v) {
    const f32v v0 = v_sub(x, y);
    return v_mul(v0, v0);
  }
};

struct mse_loss_backward_op {  // aten.mse_loss_backward, NUMERICS 7.4
  TS_INLINE static f32v f(f32v grad, f32v x, f32v y, f32v size_of_x) {
    return v_div(v_mul(v_mul(v_set1(2.0f), v_sub(x, y)), grad), size_of_x);
  }
};

struct mse_loss_backward_reduction_op {  // aten.mse_loss_backward, NUMERICS 7.4
  TS_INLINE static f32v f(f32v grad, f32v x, f32v y, f32v) {
    return v_mul(v_mul(v_set1(2.0f), v_sub(x, y)), grad);
  }
};

struct mul_op {  // aten.mul.Tensor, NUMERICS 10.2
  TS_INLINE static f32v f(f32v a, f32v b, f32v) {
    return v_mul(a, b);
  }
};

struct ne_op {  // aten.ne.Tensor, NUMERICS 10.5
  TS_INLINE static f32m f(f32v a, f32v b, f32v) {
    return v_ne(a, b);
  }
};

struct neg_op {  // aten.neg, NUMERICS 10.3
  TS_INLINE static f32v f(f32v x, f32v, f32v) {
    return v_neg(x);
  }
};

struct pow_1_op {  // aten.pow.Tensor_Scalar, NUMERICS 10.6
  TS_INLINE static f32v f(f32v x, f32v, f32v) {
    return x;
  }
};

struct pow_3_op {  // aten.pow.Tensor_Scalar, NUMERICS 10.6
  TS_INLINE static f32v f(f32v x, f32v, f32v) {
    return v_mul(v_mul(x, x), x);
  }
};

struct reciprocal_op {  // aten.reciprocal, NUMERICS 10.3
  TS_INLINE static f32v f(f32v x, f32v, f32v) {
    return v_div(v_set1(1.0f), x);
  }
};

struct relu_op {  // aten.relu, NUMERICS 6.11
  TS_INLINE static f32v f(f32v x, f32v, f32v) {
    return v_blend(v_le(x, v_zero()), v_zero(), x);
  }
};

struct sigmoid_backward_op {  // aten.sigmoid_backward, NUMERICS 6.11
  TS_INLINE static f32v f(f32v grad, f32v x, f32v) {
    return v_mul(grad, v_mul(x, v_sub(v_set1(1.0f), x)));
  }
};

struct silu_op {  // aten.silu, NUMERICS 6.11
  TS_INLINE static f32v f(f32v x, f32v, f32v) {
    return v_mul(x, cr_sigmoid(x));
  }
};

struct silu_backward_op {  // aten.silu_backward, NUMERICS 6.11
  TS_INLINE static f32v f(f32v grad, f32v x, f32v) {
    const f32v v0 = cr_sigmoid(x);
    return v_mul(grad, v_mul(v0, v_fma(x, v_sub(v_set1(1.0f), v0), v_set1(1.0f))));
  }
};

struct sqrt_op {  // aten.sqrt, NUMERICS 10.3
  TS_INLINE static f32v f(f32v x, f32v, f32v) {
    return v_sqrt(x);
  }
};

struct square_op {  // aten.square, NUMERICS 10.3
  TS_INLINE static f32v f(f32v x, f32v, f32v) {
    return v_mul(x, x);
  }
};

struct sub_op {  // aten.sub.Tensor, NUMERICS 10.2
  TS_INLINE static f32v f(f32v a, f32v b, f32v) {
    return v_sub(a, b);
  }
};

struct sub_alpha_op {  // aten.sub.Tensor, NUMERICS 10.2
  TS_INLINE static f32v f(f32v a, f32v b, f32v alpha) {
    return v_fma(v_neg(alpha), b, a);
  }
};

struct tanh_backward_op {  // aten.tanh_backward, NUMERICS 6.11
  TS_INLINE static f32v f(f32v grad, f32v x, f32v) {
    return v_mul(grad, v_fma(v_neg(x), x, v_set1(1.0f)));
  }
};

struct threshold_backward_op {  // aten.threshold_backward, NUMERICS 6.11
  TS_INLINE static f32v f(f32v grad, f32v x, f32v threshold) {
    return v_blend(v_le(x, threshold), v_zero(), grad);
  }
};

}  // namespace tallystick::TS_ISA
