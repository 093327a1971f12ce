// sin and cos: |x| = k pi/2 + r, then a polynomial in r. Below 2^28 the reduction is three fma with
// pi/2 in three parts; above, per lane, 2/pi to 256 bits (Payne and Hanek).
// Binary64, rounded once to binary32; proof in docs/proofs/elementary.md.
#pragma once
#include "tallystick/elementary_exp.hpp"

namespace tallystick::TS_ISA {

constexpr double kTwoOverPi = 0x1.45f306dc9c883p-1;
constexpr double kPio2A = 0x1.921fb544p0;      // a multiple of 2^-32
constexpr double kPio2B = 0x1.0b4611a6p-34;    // a multiple of 2^-66
constexpr double kPio2C = 0x1.3198a2e037073p-69;
constexpr double kPio2Hi = 0x1.921fb54442d18p0;
constexpr double kPio2Lo = 0x1.1a62633145c07p-54;
constexpr double kTrigBig = 0x1p28;

// (sin r - r) / r^3 and (cos r - 1 + r^2/2) / r^4 in powers of r^2, |r| <= pi/4
TS_CONSTANT double kSinTail[] = {
    -0x1.5555555555555p-3, 0x1.111111111108bp-7,  -0x1.a01a01a006d9ap-13, 0x1.71de3a401c279p-19,
    -0x1.ae643d490f676p-26, 0x1.6114aa2fb150cp-33, -0x1.a55f35149cbb6p-41};
TS_CONSTANT double kCosTail[] = {
    0x1.5555555555555p-5,  -0x1.6c16c16c16b47p-10, 0x1.a01a01a00189p-16, -0x1.27e4fb604088p-22,
    0x1.1eed76f817669p-29, -0x1.937d1d256a874p-37, 0x1.a1b30e8de5759p-45};

// The first 256 bits of 2/pi.
TS_CONSTANT uint64_t kTwoOverPiBits[] = {0xa2f9836e4e441529ull, 0xfc2757d1f534ddc0ull,
                                       0xdb6295993c439041ull, 0xfe5163abdebbc561ull};

struct TrigArgument {
  f64v r;
  f64v quadrant;  // the two low bits of the pattern
};

TS_INLINE TrigArgument trig_reduce(f64v ax) {
  const f64v magic = d_fma(ax, d_set1(kTwoOverPi), d_set1(kRoundMagic));
  const f64v k = d_sub(magic, d_set1(kRoundMagic));
  // The first step is exact; the second is exact where it cancels, |r| < 2^-13.
  f64v r = d_fnma(k, d_set1(kPio2A), ax);
  r = d_fnma(k, d_set1(kPio2B), r);
  return {d_fnma(k, d_set1(kPio2C), r), magic};
}

// Shift is 0 for sin and 1 for cos: cos x = sin(x + pi/2).
template <int Shift>
TS_INLINE f64v trig_finish(TrigArgument a) {
  const f64v q = d_iadd(a.quadrant, d_set1_bits(Shift));
  const f64v z = d_mul(a.r, a.r);
  const f64v s = d_fma(d_mul(a.r, z), d_horner(z, kSinTail), a.r);
  const f64v half = d_fnma(z, d_set1(0.5), d_set1(1.0));
  const f64v c = d_fma(d_mul(z, z), d_horner(z, kCosTail), half);
  const f64v y = d_select(d_signbit(d_shl<63>(q)), c, s);
  return d_xor(y, d_and(d_shl<62>(q), d_set1(-0.0)));
}

template <int Shift>
struct TrigCore {  // of |x|
  TS_INLINE static f64v run(f64v ax) { return trig_finish<Shift>(trig_reduce(ax)); }
};

// ax is finite and at least 2^28: an integer m * 2^s with m < 2^24 and 5 <= s <= 104.
TS_OUTLINE TrigArgument trig_reduce_big(float ax) {
  const uint32_t bits = float_bits(ax);
  const uint32_t m = (bits & 0x7fffffu) | 0x800000u;
  // W = 2^s * 2/pi modulo 4, 2 integer bits and 126 fraction bits, truncated.
  const uint32_t skip = (bits >> 23) - 150u - 2u, word = skip / 64u, shift = skip % 64u;
  uint64_t hi = kTwoOverPiBits[word], lo = kTwoOverPiBits[word + 1];
  if (shift) {
    hi = (hi << shift) | (lo >> (64u - shift));
    lo = (lo << shift) | (kTwoOverPiBits[word + 2] >> (64u - shift));
  }
  // Truncation costs at most m * 2^-126 < 2^-102; no binary32 comes nearer to a multiple of pi/2
  // than about 2^-30, which leaves more bits than binary64 has.
  unsigned __int128 p = ((static_cast<unsigned __int128>(hi) << 64) | lo) * m;
  const uint64_t k = static_cast<uint64_t>((p + (static_cast<unsigned __int128>(1) << 125)) >> 126);
  p <<= 2;  // the fraction, signed, in units of 2^-128
  const bool negative = (p >> 127) != 0;
  if (negative) p = -p;
  hi = static_cast<uint64_t>(p >> 64);
  lo = static_cast<uint64_t>(p);
  const int zeros = leading_zeros(hi);  // hi is not 0: see above
  if (zeros) hi = (hi << zeros) | (lo >> (64 - zeros));
  // hi in two exact halves times pi/2 in two parts: one rounding that counts, then an exact scale.
  const double h1 = static_cast<double>(hi >> 32) * 0x1p32;
  const double h2 = static_cast<double>(hi & 0xffffffffu);
  const double product = fma1(h1, kPio2Hi, fma1(h2, kPio2Hi, h1 * kPio2Lo));
  const double r = product * bits_double(static_cast<uint64_t>(1023 - 64 - zeros) << 52);
  return {d_set1(negative ? -r : r), d_set1_bits(k)};
}

// Replaces the lanes of y whose argument is large.
template <int Shift>
TS_OUTLINE f32reg trig_big_lanes(f32reg ax, f32reg y) {
  float in[kF32RegLanes], out[kF32RegLanes];
  r_store(in, ax);
  r_store(out, y);
  for (size_t i = 0; i < kF32RegLanes; ++i) {
    if (!(in[i] >= static_cast<float>(kTrigBig))) continue;
    const bool finite = float_bits(in[i]) < 0x7f800000u;
    out[i] = finite ? static_cast<float>(d_lane0(trig_finish<Shift>(trig_reduce_big(in[i]))))
                    : bits_float(kCanonicalNan);
  }
  return r_load(out);
}

}  // namespace tallystick::TS_ISA
