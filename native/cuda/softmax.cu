// softmax, log_softmax and their gradients over rows (NUMERICS 6.1 - 6.4).
#include "sums.hpp"

#include "tallystick/nn_elements.hpp"

namespace tallystick::TS_ISA {

struct SoftmaxRows {
  const float* x;
  float* y;  // may be x
  int64_t rows, n;
};
struct SoftmaxGradient {
  const float *g, *y;
  float* out;  // may be g or y
  int64_t rows, n;
};

template <class Team>
TS_INLINE void softmax_row(const Team& team, const SoftmaxRows& p, int64_t r) {
  const float* x = p.x + r * p.n;
  float* y = p.y + r * p.n;
  const float m = team.template fold<Max>(p.n, [=](int64_t i) { return x[i]; });
  const float s = team.template fold<Sum>(p.n, [=](int64_t i) { return y[i] = exp_below(x[i], m); });
  team.each(p.n, [=](int64_t i) { return y[i]; },
            [=](int64_t i, float e) { put1(y + i, softmax_of(e, s)); });
}

template <class Team>
TS_INLINE void log_softmax_row(const Team& team, const SoftmaxRows& p, int64_t r) {
  const float* x = p.x + r * p.n;
  float* y = p.y + r * p.n;
  const float m = team.template fold<Max>(p.n, [=](int64_t i) { return x[i]; });
  const float s = team.template fold<Sum>(p.n, [=](int64_t i) { return exp_below(x[i], m); });
  const float l = cr_log(s);
  team.each(p.n, [=](int64_t i) { return x[i]; },
            [=](int64_t i, float v) { put1(y + i, log_softmax_of(v, m, l)); });
}

template <class Team>
TS_INLINE void softmax_gradient_row(const Team& team, const SoftmaxGradient& p, int64_t r) {
  const float *g = p.g + r * p.n, *y = p.y + r * p.n;
  float* out = p.out + r * p.n;
  const float s = team.template fold<Sum>(p.n, [=](int64_t i) { return g[i] * y[i]; });
  team.each(p.n, [=](int64_t i) { return Two{g[i], y[i]}; },
            [=](int64_t i, Two v) { put1(out + i, softmax_gradient(v.a, v.b, s)); });
}

template <class Team>
TS_INLINE void log_softmax_gradient_row(const Team& team, const SoftmaxGradient& p, int64_t r) {
  const float *g = p.g + r * p.n, *y = p.y + r * p.n;
  float* out = p.out + r * p.n;
  const float s = team.template fold<Sum>(p.n, [=](int64_t i) { return g[i]; });
  team.each(p.n, [=](int64_t i) { return Two{g[i], y[i]}; },
            [=](int64_t i, Two v) { put1(out + i, log_softmax_gradient(v.a, v.b, s)); });
}

TS_ROWS(softmax_forward, SoftmaxRows, softmax_row)
TS_ROWS(softmax_log, SoftmaxRows, log_softmax_row)
TS_ROWS(softmax_backward, SoftmaxGradient, softmax_gradient_row)
TS_ROWS(softmax_log_backward, SoftmaxGradient, log_softmax_gradient_row)

}  // namespace tallystick::TS_ISA
