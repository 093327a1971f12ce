// The optimizers' kernels: parameters, factors and list, from the operators' forms.
// Made by native/tools/render_pointwise.py; do not edit.
#pragma once
#include "device.hpp"
#include "tallystick/optimizer.hpp"

namespace tallystick::TS_ISA {

struct adam_step {
  int64_t count, fours;
  const float* in[4];
  float* out[3];
  const double* lr;
  const double* beta1_power;
  const double* beta2_power;
  const float* coefficient;
  F64 beta1;
  F64 weight_decay;
  F64 beta2;
  F64 eps;
};
TS_INLINE adam_step_factors factors_of(const adam_step& p) {
  return {-static_cast<float>(*p.lr / (1.0 - *p.beta1_power)),
          static_cast<float>(1.0 - p.beta1.value),
          p.coefficient ? *p.coefficient : 0,
          static_cast<float>(p.weight_decay.value),
          static_cast<float>(p.beta2.value),
          static_cast<float>(1.0 - p.beta2.value),
          static_cast<float>(sqrt1(1.0 - *p.beta2_power)),
          static_cast<float>(p.eps.value)};
}

struct adamw_step {
  int64_t count, fours;
  const float* in[4];
  float* out[3];
  const double* lr;
  const double* beta1_power;
  const double* beta2_power;
  const float* coefficient;
  F64 beta1;
  F64 beta2;
  F64 eps;
  F64 weight_decay;
};
TS_INLINE adamw_step_factors factors_of(const adamw_step& p) {
  return {-static_cast<float>(*p.lr / (1.0 - *p.beta1_power)),
          static_cast<float>(1.0 - p.beta1.value),
          p.coefficient ? *p.coefficient : 0,
          static_cast<float>(p.beta2.value),
          static_cast<float>(1.0 - p.beta2.value),
          static_cast<float>(sqrt1(1.0 - *p.beta2_power)),
          static_cast<float>(p.eps.value),
          static_cast<float>(1.0 - (*p.lr * p.weight_decay.value))};
}

struct sgd_step_momentum_is_0 {
  int64_t count, fours;
  const float* in[2];
  float* out[1];
  const double* lr;
  const float* coefficient;
  F64 weight_decay;
};
TS_INLINE sgd_step_momentum_is_0_factors factors_of(const sgd_step_momentum_is_0& p) {
  return {-static_cast<float>(*p.lr),
          p.coefficient ? *p.coefficient : 0,
          static_cast<float>(p.weight_decay.value)};
}

struct sgd_step {
  int64_t count, fours;
  const float* in[3];
  float* out[2];
  const double* lr;
  const float* coefficient;
  F64 momentum;
  F64 dampening;
  F64 weight_decay;
};
TS_INLINE sgd_step_factors factors_of(const sgd_step& p) {
  return {-static_cast<float>(*p.lr),
          static_cast<float>(p.momentum.value),
          static_cast<float>(1.0 - p.dampening.value),
          p.coefficient ? *p.coefficient : 0,
          static_cast<float>(p.weight_decay.value)};
}

#define TS_STEPS(X)                                                                               \
  X(adam_step, adam_step, false, false)                                                           \
  X(adam_step_weight_decay_is_0, adam_step, false, true)                                          \
  X(adam_step_has_coefficient, adam_step, true, false)                                            \
  X(adam_step_has_coefficient_weight_decay_is_0, adam_step, true, true)                           \
  X(adamw_step, adamw_step, false)                                                                \
  X(adamw_step_has_coefficient, adamw_step, true)                                                 \
  X(sgd_step_momentum_is_0, sgd_step_momentum_is_0, false, false)                                 \
  X(sgd_step_momentum_is_0_weight_decay_is_0, sgd_step_momentum_is_0, false, true)                \
  X(sgd_step_momentum_is_0_has_coefficient, sgd_step_momentum_is_0, true, false)                  \
  X(sgd_step_momentum_is_0_has_coefficient_weight_decay_is_0, sgd_step_momentum_is_0, true, true) \
  X(sgd_step, sgd_step, false, false, false)                                                      \
  X(sgd_step_nesterov, sgd_step, false, false, true)                                              \
  X(sgd_step_weight_decay_is_0, sgd_step, false, true, false)                                     \
  X(sgd_step_weight_decay_is_0_nesterov, sgd_step, false, true, true)                             \
  X(sgd_step_has_coefficient, sgd_step, true, false, false)                                       \
  X(sgd_step_has_coefficient_nesterov, sgd_step, true, false, true)                               \
  X(sgd_step_has_coefficient_weight_decay_is_0, sgd_step, true, true, false)                      \
  X(sgd_step_has_coefficient_weight_decay_is_0_nesterov, sgd_step, true, true, true)

}  // namespace tallystick::TS_ISA
