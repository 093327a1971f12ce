// Optimizer steps, one parameter at a time (NUMERICS 11). Elementwise: any range of elements may be
// computed alone. Every output may be the storage of its input.
#pragma once
#include <cstddef>

#include "dispatch.hpp"

namespace tallystick {

// The binary32 scalars of 11.2 and 11.3; the caller derives them in binary64.
struct AdamStep {
  const float *p, *g, *m, *v;
  const float* c;  // null when gradients are not scaled
  float *p_out, *m_out, *v_out;
  float rest1, beta2, rest2, eps, step_size, root_bc2;
  float decay;        // adamw: factor of p; adam: weight decay added to the gradient
  bool adds_decay;    // adam with weight decay
  bool scales_param;  // adamw
};

struct SgdStep {
  const float *p, *g, *buf, *c;  // buf null without momentum, c null without scaling
  float *p_out, *buf_out;
  float lr, momentum, undamped, weight_decay;  // undamped = RN32(1 - dampening)
  bool decays, nesterov;
};

struct OptimTable {
  void (*adam)(const AdamStep& s, size_t begin, size_t end);
  void (*sgd)(const SgdStep& s, size_t begin, size_t end);
  // out = {coefficient, norm} (11.6) of n sums of squares.
  void (*clip_coef)(const float* s, size_t n, float max_norm, float* out);
};

TS_DECLARE_TABLES(OptimTable, optim)

}  // namespace tallystick
