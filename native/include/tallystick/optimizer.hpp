// What an optimizer's step makes of a register of elements, from the operators' forms.
// Made by native/tools/render_pointwise.py; do not edit.
#pragma once
#include "tallystick/simd_f32.hpp"

namespace tallystick::TS_ISA {

// tallystick.adam_step, NUMERICS 11.3
struct adam_step_factors {
  f32v k0;  // -static_cast<float>(lr / (1.0 - beta1_power))
  f32v k1;  // static_cast<float>(1.0 - beta1)
  f32v k2;  // coefficient
  f32v k3;  // static_cast<float>(weight_decay)
  f32v k4;  // static_cast<float>(beta2)
  f32v k5;  // static_cast<float>(1.0 - beta2)
  f32v k6;  // static_cast<float>(sqrt1(1.0 - beta2_power))
  f32v k7;  // static_cast<float>(eps)
};
template <bool has_coefficient, bool weight_decay_is_0>
struct adam_step_op {
  struct Results { f32v of[3]; };
  TS_INLINE static Results f(const adam_step_factors& k, f32v p, f32v g, f32v m, f32v v) {
    const f32v v0 = has_coefficient ? v_mul(g, k.k2) : g;
    const f32v v1 = weight_decay_is_0 ? v0 : v_fma(k.k3, p, v0);
    const f32v v2 = v_fma(k.k1, v_sub(v1, m), m);
    const f32v v3 = v_fma(k.k4, v, v_mul(v_mul(k.k5, v1), v1));
    return {{v_fma(k.k0, v_div(v2, v_add(v_div(v_sqrt(v3), k.k6), k.k7)), p), v2, v3}};
  }
};

// tallystick.adamw_step, NUMERICS 11.2
struct adamw_step_factors {
  f32v k0;  // -static_cast<float>(lr / (1.0 - beta1_power))
  f32v k1;  // static_cast<float>(1.0 - beta1)
  f32v k2;  // coefficient
  f32v k3;  // static_cast<float>(beta2)
  f32v k4;  // static_cast<float>(1.0 - beta2)
  f32v k5;  // static_cast<float>(sqrt1(1.0 - beta2_power))
  f32v k6;  // static_cast<float>(eps)
  f32v k7;  // static_cast<float>(1.0 - (lr * weight_decay))
};
template <bool has_coefficient>
struct adamw_step_op {
  struct Results { f32v of[3]; };
  TS_INLINE static Results f(const adamw_step_factors& k, f32v p, f32v g, f32v m, f32v v) {
    const f32v v0 = has_coefficient ? v_mul(g, k.k2) : g;
    const f32v v1 = v_fma(k.k1, v_sub(v0, m), m);
    const f32v v2 = v_fma(k.k3, v, v_mul(v_mul(k.k4, v0), v0));
    return {{v_fma(k.k0, v_div(v1, v_add(v_div(v_sqrt(v2), k.k5), k.k6)), v_mul(p, k.k7)), v1, v2}};
  }
};

// tallystick.sgd_step, NUMERICS 11.4
struct sgd_step_momentum_is_0_factors {
  f32v k0;  // -static_cast<float>(lr)
  f32v k1;  // coefficient
  f32v k2;  // static_cast<float>(weight_decay)
};
template <bool has_coefficient, bool weight_decay_is_0>
struct sgd_step_momentum_is_0_op {
  struct Results { f32v of[1]; };
  TS_INLINE static Results f(const sgd_step_momentum_is_0_factors& k, f32v p, f32v g) {
    const f32v v0 = has_coefficient ? v_mul(g, k.k1) : g;
    const f32v v1 = weight_decay_is_0 ? v0 : v_fma(k.k2, p, v0);
    return {{v_fma(k.k0, v1, p)}};
  }
};

// tallystick.sgd_step, NUMERICS 11.4
struct sgd_step_factors {
  f32v k0;  // -static_cast<float>(lr)
  f32v k1;  // static_cast<float>(momentum)
  f32v k2;  // static_cast<float>(1.0 - dampening)
  f32v k3;  // coefficient
  f32v k4;  // static_cast<float>(weight_decay)
};
template <bool has_coefficient, bool weight_decay_is_0, bool nesterov>
struct sgd_step_op {
  struct Results { f32v of[2]; };
  TS_INLINE static Results f(const sgd_step_factors& k, f32v p, f32v g, f32v buffer) {
    const f32v v0 = has_coefficient ? v_mul(g, k.k3) : g;
    const f32v v1 = weight_decay_is_0 ? v0 : v_fma(k.k4, p, v0);
    const f32v v2 = v_fma(k.k1, buffer, v_mul(k.k2, v1));
    const f32v v3 = nesterov ? v_fma(k.k1, v2, v1) : v2;
    return {{v_fma(k.k0, v3, p), v2}};
  }
};

}  // namespace tallystick::TS_ISA
