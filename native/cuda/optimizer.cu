// Optimizer steps of one parameter (NUMERICS 11.1 to 11.4). What changes from step to step is read
// from the device's memory: the learning rate, the powers of beta and the coefficient.
#include "point.hpp"
#include "steps.hpp"

namespace tallystick::TS_ISA {

// One thread of a block computes the factors for all: binary64 division is slow on most devices.
template <class Factors, class Params>
TS_INLINE Factors block_factors(Factors* shared, const Params& p) {
  if (thread_index() == 0) *shared = factors_of(p);
  block_barrier();
  return *shared;
}

// The numbers 0 to Count - 1, of operands.
template <int... K>
struct Numbers {};
template <int Count, int... K>
struct NumbersTo : NumbersTo<Count - 1, Count - 1, K...> {};
template <int... K>
struct NumbersTo<0, K...> { using Of = Numbers<K...>; };

// W neighbouring elements of each operand from number i on.
template <int W, class Op, int In, int Out, class Factors, int... K>
TS_INLINE void step_at(const float* const (&in)[In], float* const (&out)[Out],
                       const Factors& factors, int64_t i, Numbers<K...>) {
  const Pack<float, W> x[] = {take<W>(in[K] + i)...};
  Pack<float, W> made[Out];
  TS_UNROLL
  for (int j = 0; j < W; ++j) {
    const typename Op::Results results = Op::f(factors, x[K].of[j]...);
    TS_UNROLL
    for (int k = 0; k < Out; ++k) made[k].of[j] = finished(results.of[k]);
  }
  TS_UNROLL
  for (int k = 0; k < Out; ++k) give<W>(out[k] + i, made[k]);
}
template <class Op, class Params, class Factors>
TS_INLINE void step(const Params& p, const Factors& factors) {
  const typename NumbersTo<sizeof(p.in) / sizeof(p.in[0])>::Of numbers;
  const int64_t whole = p.fours ? p.count - p.count % 4 : 0;
  for (int64_t i = 4 * first_item(); i < whole; i += 4 * item_step())
    step_at<4, Op>(p.in, p.out, factors, i, numbers);
  for (int64_t i = whole + first_item(); i < p.count; i += item_step())
    step_at<1, Op>(p.in, p.out, factors, i, numbers);
}

#define TS_STEP(name, params, ...)                                    \
  TS_KERNEL(optimizer_##name, params, 256) {                          \
    TS_SHARED(params##_factors, factors, 1);                          \
    step<params##_op<__VA_ARGS__>>(p, block_factors(factors, p));     \
  }
TS_STEPS(TS_STEP)

struct BetaPower {
  const double* power;
  double* out;
  F64 beta;
};
TS_KERNEL(optimizer_beta_power, BetaPower, 32) {
  const double power = *p.power * p.beta.value;
  if (first_item() == 0) *p.out = power == power ? power : bits_double(0x7ff8000000000000ull);
}

}  // namespace tallystick::TS_ISA
