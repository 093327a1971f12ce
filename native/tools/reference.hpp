// References for the elementary functions that share no code with the kernels: the special values
// by clause, a binary64 filter from the C library, and MPFR.
#pragma once
#include <mpfr.h>

#include <cmath>
#include <cstdint>
#include <cstring>

#include "families/elementary.hpp"

namespace reference {

inline float from_bits(uint32_t u) { float x; std::memcpy(&x, &u, 4); return x; }
inline uint32_t to_bits(float x) { uint32_t u; std::memcpy(&u, &x, 4); return u; }

constexpr uint32_t kNan = 0x7fc00000u, kInf = 0x7f800000u, kSign = 0x80000000u;
constexpr uint32_t kOne = 0x3f800000u, kHalf = 0x3f000000u;

// A function's results where its value is not a nonzero real number obtained from a finite x.
struct Specials {
  uint32_t at_zero;      // f(+0)
  uint32_t at_neg_zero;  // f(-0)
  uint32_t at_inf, at_neg_inf;
  double pole;           // f is NaN below and -inf at the pole; -HUGE_VAL: no pole
  double root;           // a nonzero x with f(x) = +0 exactly; 0: none
};

struct Function {
  const char* name;
  tallystick::UnaryFn tallystick::ElementaryTable::*kernel;
  Specials specials;
  double (*filter)(double);
  int (*mpfr)(mpfr_ptr, mpfr_srcptr, mpfr_rnd_t);  // null: sigmoid
};

// Each filter's relative error, for a finite nonzero x whose value is a normal binary64, is below
// 2^-50: the C library's stated bounds for these functions are at most 2 ulp (2^-51; glibc manual,
// "Known Maximum Errors in Math Functions"), the sigmoid adds two roundings and at most one
// propagated error, rsqrt is two roundings in long double. The margin below is 64 times that.
constexpr double kFilterMargin = 0x1p-44;

inline double filter_sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }
inline double filter_rsqrt(double x) {
  return static_cast<double>(1.0L / std::sqrt(static_cast<long double>(x)));
}
#define TS_LIBM(name) inline double filter_##name(double x) { return std::name(x); }
TS_LIBM(exp) TS_LIBM(log) TS_LIBM(tanh) TS_LIBM(erf) TS_LIBM(sin) TS_LIBM(cos)
TS_LIBM(expm1) TS_LIBM(log1p) TS_LIBM(exp2) TS_LIBM(log2)
#undef TS_LIBM

using T = tallystick::ElementaryTable;
constexpr double kNoPole = -HUGE_VAL;
inline const Function kFunctions[] = {
    {"exp", &T::exp, {kOne, kOne, kInf, 0, kNoPole, 0}, filter_exp, mpfr_exp},
    {"log", &T::log, {kInf | kSign, kInf | kSign, kInf, kNan, 0.0, 1.0}, filter_log, mpfr_log},
    {"tanh", &T::tanh, {0, kSign, kOne, kOne | kSign, kNoPole, 0}, filter_tanh, mpfr_tanh},
    {"erf", &T::erf, {0, kSign, kOne, kOne | kSign, kNoPole, 0}, filter_erf, mpfr_erf},
    {"sigmoid", &T::sigmoid, {kHalf, kHalf, kOne, 0, kNoPole, 0}, filter_sigmoid, nullptr},
    {"sin", &T::sin, {0, kSign, kNan, kNan, kNoPole, 0}, filter_sin, mpfr_sin},
    {"cos", &T::cos, {kOne, kOne, kNan, kNan, kNoPole, 0}, filter_cos, mpfr_cos},
    {"rsqrt", &T::rsqrt, {kInf, kInf | kSign, 0, kNan, 0.0, 0}, filter_rsqrt, mpfr_rec_sqrt},
    {"expm1", &T::expm1, {0, kSign, kInf, kOne | kSign, kNoPole, 0}, filter_expm1, mpfr_expm1},
    {"log1p", &T::log1p, {0, kSign, kInf, kNan, -1.0, 0}, filter_log1p, mpfr_log1p},
    {"exp2", &T::exp2, {kOne, kOne, kInf, 0, kNoPole, 0}, filter_exp2, mpfr_exp2},
    {"log2", &T::log2, {kInf | kSign, kInf | kSign, kInf, kNan, 0.0, 1.0}, filter_log2, mpfr_log2},
};

inline bool special_value(const Function& f, float x, uint32_t* result) {
  const Specials& s = f.specials;
  const uint32_t bits = to_bits(x);
  if (x != x) *result = kNan;
  else if (bits == 0) *result = s.at_zero;
  else if (bits == kSign) *result = s.at_neg_zero;
  else if (bits == kInf) *result = s.at_inf;
  else if (bits == (kInf | kSign)) *result = s.at_neg_inf;
  else if (s.pole != kNoPole && x < s.pole) *result = kNan;
  else if (s.pole != kNoPole && x == s.pole) *result = kInf | kSign;
  else if (s.root != 0 && x == s.root) *result = 0;
  else return false;
  return true;
}

// RN(f(x)) for a finite x without a special value, if the filter can tell.
inline bool filter_value(const Function& f, float x, uint32_t* result) {
  const double v = f.filter(static_cast<double>(x));
  const double magnitude = std::fabs(v);
  if (magnitude > 0x1p1000 || magnitude < 0x1p-1000) {
    // The library overflowed or underflowed, or nearly: f(x) is beyond 2^999 or below 2^-999, far
    // outside binary32, whatever the relative error near binary64's own limits.
    *result = magnitude > 1 ? kInf : 0;
    if (std::signbit(v)) *result |= kSign;
    return true;
  }
  // |f(x) - v| <= 2^-50 |f(x)| lies inside; rounding is monotone, so equal ends decide.
  const float lo = static_cast<float>(v - magnitude * kFilterMargin);
  const float hi = static_cast<float>(v + magnitude * kFilterMargin);
  *result = to_bits(lo);
  return to_bits(lo) == to_bits(hi);
}

// RN(f(x)) by MPFR. One object per thread.
class Exact {
 public:
  Exact() {
    mpfr_init2(x_, 24);
    mpfr_init2(y_, 24);
    mpfr_init2(t_, 256);
    narrow();
  }
  ~Exact() { mpfr_clears(x_, y_, t_, static_cast<mpfr_ptr>(nullptr)); }
  Exact(const Exact&) = delete;
  Exact& operator=(const Exact&) = delete;

  uint32_t value(const Function& f, float x) {
    if (!f.mpfr && std::fabs(x) > 120) {
      // sigmoid: within 2^-173 of 1, or below 2^-173; MPFR would need as many bits as |x|.
      return x > 0 ? kOne : 0;
    }
    mpfr_set_flt(x_, x, MPFR_RNDN);
    const int ternary = f.mpfr ? f.mpfr(y_, x_, MPFR_RNDN) : sigmoid();
    return finish(ternary);
  }

  uint32_t pow(float x, float y) {
    mpfr_set_flt(x_, x, MPFR_RNDN);
    mpfr_set_flt(y_, y, MPFR_RNDN);
    mpfr_set_prec(t_, 24);
    const int ternary = mpfr_pow(t_, x_, y_, MPFR_RNDN);
    mpfr_set(y_, t_, MPFR_RNDN);
    return finish(ternary);
  }

 private:
  // binary32's exponents: [1/2, 1) * 2^e with -148 <= e <= 128, subnormals by mpfr_subnormalize.
  static void narrow() { mpfr_set_emin(-148); mpfr_set_emax(128); }

  uint32_t finish(int ternary) {
    mpfr_subnormalize(y_, ternary, MPFR_RNDN);
    if (mpfr_nan_p(y_)) return kNan;
    return to_bits(mpfr_get_flt(y_, MPFR_RNDN));
  }

  int sigmoid() {
    mpfr_set_emin(mpfr_get_emin_min());
    mpfr_set_emax(mpfr_get_emax_max());
    int ternary = 0;
    for (mpfr_prec_t p = 256;; p *= 2) {
      mpfr_set_prec(t_, p);
      mpfr_neg(t_, x_, MPFR_RNDN);
      mpfr_exp(t_, t_, MPFR_RNDN);
      mpfr_add_ui(t_, t_, 1, MPFR_RNDN);
      mpfr_ui_div(t_, 1, t_, MPFR_RNDN);
      // three roundings, none amplified: relative error below 2^(2-p)
      if (mpfr_can_round(t_, p - 3, MPFR_RNDN, MPFR_RNDZ, 25)) break;
    }
    narrow();
    ternary = mpfr_set(y_, t_, MPFR_RNDN);
    return mpfr_check_range(y_, ternary, MPFR_RNDN);
  }

  mpfr_t x_, y_, t_;
};

}  // namespace reference
