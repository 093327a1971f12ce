// exp, exp2, expm1, tanh and sigmoid, evaluated in binary64 to about one unit in the last place and
// rounded once to binary32. A search over all 2^32 inputs, not an argument, finds the inputs that
// this misrounds: docs/proofs/elementary.md. Coefficients: native/tools/gen_elementary.sollya.
#pragma once
#include "tallystick/simd_f64.hpp"

namespace tallystick::TS_ISA {

// Horner's scheme, c[0] + x*(c[1] + x*(...)), each step one fma.
template <size_t N>
TS_INLINE f64v d_horner(f64v x, const double (&c)[N]) {
  f64v acc = d_set1(c[N - 1]);
  for (size_t i = N - 1; i-- > 0;) acc = d_fma(acc, x, d_set1(c[i]));
  return acc;
}

// Adding 1.5 * 2^52 rounds to an integer (ties to even) and leaves it in the low mantissa bits.
constexpr double kRoundMagic = 0x1.8p52;
constexpr double kLog2E = 0x1.71547652b82fep0;
constexpr double kLn2Hi = 0x1.62e42fefa38p-1;  // 42 bits: k * kLn2Hi is exact for |k| < 2^11
constexpr double kLn2Lo = 0x1.ef35793c7673p-45;

// (e^r - 1 - r) / r^2 on |r| <= ln(2)/2
TS_CONSTANT double kExpTail[] = {
    0x1.000000000000ap-1,  0x1.55555555554fdp-3,  0x1.5555555550699p-5,  0x1.1111111126ec8p-7,
    0x1.6c16c1848329p-10,  0x1.a01a012ee246cp-13, 0x1.a0199935aeb6ep-16, 0x1.71df1ae67ed64p-19,
    0x1.28ae28e0c773ep-22, 0x1.ad90692f846b2p-26};
// (2^r - 1) / r on |r| <= 1/2
TS_CONSTANT double kExp2Tail[] = {
    0x1.62e42fefa39efp-1,  0x1.ebfbdff82c58dp-3,  0x1.c6b08d704a182p-5,  0x1.3b2ab6fba53b7p-7,
    0x1.5d87fe7888e22p-10, 0x1.430912f701c84p-13, 0x1.ffcbfcdb06bccp-17, 0x1.62c027b3394f5p-20,
    0x1.b5242365435ebp-24, 0x1.e4bbcfed804b4p-28, 0x1.eafd3fa0b62fbp-32, 0x1.de2f047478a25p-36};

struct Expm1Parts {
  f64v p;      // e^r - 1
  f64v magic;  // its low bits are k, where x = k ln2 + r
};

TS_INLINE Expm1Parts expm1_parts(f64v x) {
  const f64v magic = d_fma(x, d_set1(kLog2E), d_set1(kRoundMagic));
  const f64v k = d_sub(magic, d_set1(kRoundMagic));
  const f64v r = d_fnma(k, d_set1(kLn2Lo), d_fnma(k, d_set1(kLn2Hi), x));
  return {d_fma(d_mul(r, r), d_horner(r, kExpTail), r), magic};
}

// y * 2^k; y near 1 and |k| < 1000, so that only the exponent field moves.
TS_INLINE f64v scale_by_magic(f64v y, f64v magic) { return d_iadd(y, d_shl<52>(magic)); }

TS_INLINE f64v exp_f64(f64v x) {  // |x| < 700
  const Expm1Parts e = expm1_parts(x);
  return scale_by_magic(d_add(e.p, d_set1(1.0)), e.magic);
}

TS_INLINE f64v expm1_f64(f64v x) {
  const Expm1Parts e = expm1_parts(x);
  const f64v s = scale_by_magic(d_set1(1.0), e.magic);
  return d_fma(s, e.p, d_sub(s, d_set1(1.0)));
}

TS_INLINE f64v clamp_f64(f64v x, double lo, double hi) {
  return d_max(d_min(x, d_set1(hi)), d_set1(lo));
}

// Past the clamps the rounded result no longer changes: 0, infinity, -1, 1.
struct ExpCore {
  TS_INLINE static f64v run(f64v x) { return exp_f64(clamp_f64(x, -110.0, 90.0)); }
};

struct Exp2Core {
  TS_INLINE static f64v run(f64v x) {
    x = clamp_f64(x, -160.0, 130.0);
    const f64v magic = d_add(x, d_set1(kRoundMagic));
    const f64v r = d_sub(x, d_sub(magic, d_set1(kRoundMagic)));
    return scale_by_magic(d_fma(r, d_horner(r, kExp2Tail), d_set1(1.0)), magic);
  }
};

struct Expm1Core {
  TS_INLINE static f64v run(f64v x) { return expm1_f64(clamp_f64(x, -40.0, 90.0)); }
};

struct TanhCore {  // of |x|
  TS_INLINE static f64v run(f64v ax) {
    const f64v t = expm1_f64(d_mul(d_min(ax, d_set1(10.0)), d_set1(2.0)));
    return d_div(t, d_add(t, d_set1(2.0)));
  }
};

struct SigmoidCore {
  TS_INLINE static f64v run(f64v x) {
    const f64v sign = d_and(x, d_set1(-0.0));
    const f64v ax = d_xor(x, sign);
    const f64v minus = d_xor(clamp_f64(x, -110.0, 40.0), d_set1(-0.0));
    const f64v y = d_div(d_set1(1.0), d_add(exp_f64(minus), d_set1(1.0)));
    // 1/2 + x/4 - x^3/48 + ...: for small x, 1/2 + x/4 may lie on a rounding boundary while the
    // cubic term is far below binary64. One step towards 1/2 stands for it: below 2^-11 no
    // boundary other than 1/2 + x/4 itself lies that close: x^3/48 < 2^-38, half a last bit of x/4.
    const f64v line = d_fma(x, d_set1(0.25), d_set1(0.5));
    const f64v step = d_or(d_set1(0x1p-53), sign);
    return d_select(d_lt(ax, d_set1(0x1p-11)), d_sub(line, step), y);
  }
};

}  // namespace tallystick::TS_ISA
