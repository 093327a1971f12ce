// The pointwise loops: name, number of operands, kind, work of an element.
// Kinds: f is binary32 in and out, c binary32 to bool, m binary32 and bool to binary32.
// Made by native/tools/render_pointwise.py; do not edit.
#pragma once

#define TS_POINTWISE(X)                   \
  X(abs, 1, f, 1)                         \
  X(add, 2, f, 1)                         \
  X(add_alpha, 2, f, 1)                   \
  X(clamp_max, 1, f, 1)                   \
  X(clamp_min, 1, f, 1)                   \
  X(clamp_min_max, 1, f, 1)               \
  X(div, 2, f, 1)                         \
  X(eq, 2, c, 1)                          \
  X(ge, 2, c, 1)                          \
  X(gelu, 1, f, 4)                        \
  X(gelu_backward, 2, f, 4)               \
  X(gelu_backward_tanh, 2, f, 4)          \
  X(gelu_tanh, 1, f, 4)                   \
  X(gt, 2, c, 1)                          \
  X(le, 2, c, 1)                          \
  X(leaky_relu, 1, f, 1)                  \
  X(lt, 2, c, 1)                          \
  X(mask_scale, 2, m, 1)                  \
  X(maximum, 2, f, 1)                     \
  X(minimum, 2, f, 1)                     \
  X(mse_loss, 2, f, 1)                    \
  X(mse_loss_backward, 3, f, 1)           \
  X(mse_loss_backward_reduction, 3, f, 1) \
  X(mul, 2, f, 1)                         \
  X(ne, 2, c, 1)                          \
  X(neg, 1, f, 1)                         \
  X(pow_1, 1, f, 1)                       \
  X(pow_3, 1, f, 1)                       \
  X(reciprocal, 1, f, 1)                  \
  X(relu, 1, f, 1)                        \
  X(sigmoid_backward, 2, f, 1)            \
  X(silu, 1, f, 4)                        \
  X(silu_backward, 2, f, 4)               \
  X(sqrt, 1, f, 1)                        \
  X(square, 1, f, 1)                      \
  X(sub, 2, f, 1)                         \
  X(sub_alpha, 2, f, 1)                   \
  X(tanh_backward, 2, f, 1)               \
  X(threshold_backward, 2, f, 1)
