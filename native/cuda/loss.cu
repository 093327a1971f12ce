// Cross-entropy and negative log-likelihood with their gradients, squared error (NUMERICS 7). The sums
// over rows are folds of reduce.cu.
#include "sums.hpp"

#include "tallystick/nn_elements.hpp"
#include "tallystick/pointwise.hpp"

namespace tallystick::TS_ISA {

// RN32 of the number of rows that are not ignored. A target that is no class is refused, at its row.
struct LossCount {
  const int64_t* target;
  float *count, *count_too;  // the second may be null
  int64_t rows, classes, ignore_index;
  Refusal refusal;
};
TS_KERNEL(loss_count, LossCount, 1024) {
  TS_SHARED(int64_t, room, kRoom);
  const int64_t live = block_fold<WholeSum>(0, p.rows, [&](int64_t r) -> int64_t {
    const int64_t t = p.target[r];
    if (t == p.ignore_index) return 0;
    if (t < 0 || t >= p.classes) refuse(p.refusal, r);
    return 1;
  }, room);
  if (thread_index() != 0) return;
  *p.count = static_cast<float>(live);
  if (p.count_too) *p.count_too = static_cast<float>(live);
}
// A class, also where loss_count refuses the target.
TS_INLINE int64_t class_of(int64_t target, int64_t classes) {
  return target < 0 || target >= classes ? 0 : target;
}

// --- cross_entropy (7.1, 7.2) --------------------------------------------------------------------
struct CrossEntropy {
  const float* x;
  const int64_t* target;
  float *loss, *row_max, *row_sum;  // of every row
  int64_t rows, n, ignore_index;
};
template <class Team>
TS_INLINE void cross_entropy_row(const Team& team, const CrossEntropy& p, int64_t r) {
  const float* x = p.x + r * p.n;
  const float m = team.template fold<Max>(p.n, [=](int64_t i) { return x[i]; });
  const float s = team.template fold<Sum>(p.n, [=](int64_t i) { return exp_below(x[i], m); });
  if (!team.is_first()) return;
  const int64_t t = p.target[r];
  put1(p.row_max + r, m);
  put1(p.row_sum + r, s);
  if (t == p.ignore_index) p.loss[r] = 0.0f;
  else put1(p.loss + r, cross_entropy_loss(cr_log(s), x[class_of(t, p.n)], m));
}
TS_ROWS(loss_cross_entropy, CrossEntropy, cross_entropy_row)

struct LossGradient {
  const float *g, *x;
  const int64_t* target;
  const float *row_max, *row_sum;
  const float* divisor;  // `mean`: the count of live rows; else null
  float* out;            // may be x
  int64_t rows, n, ignore_index, per_row;  // per_row: g has a value for each row
};
TS_INLINE float row_coefficient(const LossGradient& p, int64_t r) {
  const float g = p.g[p.per_row ? r : 0];
  return p.divisor ? g / *p.divisor : g;
}
template <class Team>
TS_INLINE void cross_entropy_gradient_row(const Team& team, const LossGradient& p, int64_t r) {
  const float* x = p.x + r * p.n;
  float* out = p.out + r * p.n;
  const int64_t t = p.target[r];
  const bool ignored = t == p.ignore_index;
  const float c = row_coefficient(p, r), m = p.row_max[r], s = p.row_sum[r];
  team.each(p.n, [=](int64_t i) { return x[i]; }, [=](int64_t i, float v) {
    if (ignored) {
      out[i] = 0.0f;
      return;
    }
    const float here = probability(v, m, s);
    put1(out + i, i == t ? target_gradient(here, c) : here * c);
  });
}
TS_ROWS(loss_cross_entropy_backward, LossGradient, cross_entropy_gradient_row)

// --- nll_loss (7.3) ------------------------------------------------------------------------------
struct NegativeLog {
  const float* x;
  const int64_t* target;
  float* loss;  // of every row
  int64_t rows, n, ignore_index;
};
TS_KERNEL(loss_nll, NegativeLog, 256) {
  for (int64_t r = first_item(); r < p.rows; r += item_step()) {
    const int64_t t = p.target[r];
    if (t == p.ignore_index) p.loss[r] = 0.0f;
    else put1(p.loss + r, -p.x[r * p.n + class_of(t, p.n)]);
  }
}
template <class Team>
TS_INLINE void nll_gradient_row(const Team& team, const LossGradient& p, int64_t r) {
  float* out = p.out + r * p.n;
  const int64_t t = p.target[r] == p.ignore_index ? -1 : p.target[r];
  const float c = row_coefficient(p, r);
  team.each(p.n, [](int64_t) { return 0.0f; }, [=](int64_t i, float zero) {
    if (i == t) put1(out + i, -c);
    else out[i] = zero;
  });
}
TS_ROWS(loss_nll_backward, LossGradient, nll_gradient_row)

// --- squared error without a reduction (7.4) -----------------------------------------------------
struct SquaredError {
  const float *x, *y;
  float* out;
  int64_t count;
};
TS_KERNEL(loss_mse, SquaredError, 256) {
  const auto get = [&](int64_t i) { return Two{p.x[i], p.y[i]}; };
  each_item(first_item(), item_step(), p.count, get, [&](int64_t i, Two v) {
    put1(p.out + i, mse_loss_op::f(v.a, v.b, 0.0f));
  });
}

}  // namespace tallystick::TS_ISA
