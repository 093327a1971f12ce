// Python's door to the optimizer steps (NUMERICS 11).
#include "arrays.hpp"
#include "families/optim.hpp"

namespace tallystick {
namespace {

using namespace arrays;
// Memory bounds these kernels: a second core helps from about a megabyte on.
constexpr size_t kGrain = 65536;

// NUMERICS 1.9: an attribute is a binary64 number, rounded here, inside of the guard.
float rn32(double x) { return static_cast<float>(x); }

template <class O>
void check_step(size_t n, const O& out, const In& own) {
  require(count(out) == n && count(own) == n, "tensors of one step must have one size");
  require_same_or_apart(out, {own});
}

void adam(In p, In g, In m, In v, MaybeIn c, Out p_out, Out m_out, Out v_out, double rest1,
          double beta2, double rest2, double eps, double step_size, double root_bc2,
          double decay, bool adds_decay, bool scales_param) {
  const size_t n = count(p);
  require(count(g) == n && (!c || count(*c) == 1), "tensors of one step must have one size");
  check_step(n, p_out, p);
  check_step(n, m_out, m);
  check_step(n, v_out, v);
  for (const Out* out : {&p_out, &m_out, &v_out}) require_same_or_apart(*out, {p, g, m, v});
  require_disjoint({p_out, m_out, v_out}, {});
  const float scale = c ? *c->data() : 0.0f;
  const AdamStep s = {p.data(), g.data(), m.data(), v.data(), c ? &scale : nullptr,
                      p_out.data(), m_out.data(), v_out.data(), rn32(rest1), rn32(beta2),
                      rn32(rest2), rn32(eps), rn32(step_size), rn32(root_bc2), rn32(decay),
                      adds_decay, scales_param};
  const auto fn = TS_DISPATCH(optim).adam;
  unlocked_ranges(n, kGrain, [&](size_t b, size_t e) { fn(s, b, e); });
}

void sgd(In p, In g, MaybeIn buf, MaybeIn c, Out p_out, MaybeOut buf_out, double lr,
         double momentum, double undamped, double weight_decay, bool decays, bool nesterov) {
  const size_t n = count(p);
  require(count(g) == n && (!c || count(*c) == 1), "tensors of one step must have one size");
  require(buf.has_value() == buf_out.has_value(), "buf and its output come together");
  check_step(n, p_out, p);
  if (buf) check_step(n, *buf_out, *buf);
  require_same_or_apart(p_out, {g, buf});
  require_same_or_apart(buf_out, {p, g});
  require_disjoint({p_out, buf_out}, {});
  const float scale = c ? *c->data() : 0.0f;
  const SgdStep s = {p.data(), g.data(), buf ? buf->data() : nullptr, c ? &scale : nullptr,
                     p_out.data(), buf_out ? buf_out->data() : nullptr, rn32(lr), rn32(momentum),
                     rn32(undamped), rn32(weight_decay), decays, nesterov};
  const auto fn = TS_DISPATCH(optim).sgd;
  unlocked_ranges(n, kGrain, [&](size_t b, size_t e) { fn(s, b, e); });
}

void clip_coef(In squares, double max_norm, Out coefficient, Out norm) {
  require(count(coefficient) == 1 && count(norm) == 1, "outputs of clip_coef are scalars");
  float out[2];
  TS_DISPATCH(optim).clip_coef(squares.data(), count(squares), rn32(max_norm), out);
  *coefficient.data() = out[0];
  *norm.data() = out[1];
}

}  // namespace
}  // namespace tallystick

void bind_optim(nb::module_& m) {
  using namespace tallystick;
  define(m, "adam_step", &adam, "p"_a, "g"_a, "m"_a, "v"_a, or_none("c"), "p_out"_a, "m_out"_a,
         "v_out"_a, "rest1"_a, "beta2"_a, "rest2"_a, "eps"_a, "step_size"_a, "root_bc2"_a,
         "decay"_a, "adds_decay"_a, "scales_param"_a,
         "One Adam or AdamW step on f32 tensors of one size (NUMERICS 11.2, 11.3).");
  define(m, "sgd_step", &sgd, "p"_a, "g"_a, or_none("buf"), or_none("c"), "p_out"_a, or_none("buf_out"),
         "lr"_a, "momentum"_a, "undamped"_a, "weight_decay"_a, "decays"_a, "nesterov"_a,
         "One SGD step on f32 tensors of one size (NUMERICS 11.4).");
  define(m, "clip_coef", &clip_coef, "squares"_a, "max_norm"_a, "coefficient"_a, "norm"_a,
         "Gradient clipping's coefficient and norm (NUMERICS 11.6).");
}
