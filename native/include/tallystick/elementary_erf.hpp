// erf: x P(x^2)/Q(x^2) for |x| <= 3.93, every coefficient positive, so that nothing cancels.
// rsqrt: 1/sqrt(x). Binary64, rounded once to binary32; proof in docs/proofs/elementary.md.
#pragma once
#include "tallystick/elementary_exp.hpp"

namespace tallystick::TS_ISA {

// From native/tools/gen_erf.py.
TS_CONSTANT double kErfP[] = {
    0x1.20dd750429b6dp+0,  0x1.b2d7d53c4ae15p-3,  0x1.0541c1cf03ab4p-4,  0x1.9c0c2f87bc506p-8,
    0x1.90a182946f90ep-11, 0x1.8afede8e5abbap-15, 0x1.96132d47a203bp-19, 0x1.f645eb00b304ap-24,
    0x1.131a441876a48p-28, 0x1.62e2965b98c54p-34, 0x1.055b5f19e8a66p-40, 0x1.9e98e8977a376p-50};
TS_CONSTANT double kErfQ[] = {
    0x1.0000000000000p+0,  0x1.0b025332a039bp-1,  0x1.0afa81c7c783bp-3,  0x1.52e69fce8ece6p-6,
    0x1.30812c3e2205ep-9,  0x1.984437862f0e1p-13, 0x1.a26dd68e3ffeap-17, 0x1.490980fa7c0e3p-21,
    0x1.85d6f407e197ep-26, 0x1.499b433f5bcb8p-31, 0x1.59cde2573a7f2p-37, 0x1.ec10b663c194ep-45};

struct ErfCore {  // of |x|
  TS_INLINE static f64v run(f64v ax) {
    const f64v x = d_min(ax, d_set1(3.9296875));  // erf rounds to 1 from 3.9192 on
    const f64v z = d_mul(x, x);
    return d_div(d_mul(x, d_horner(z, kErfP)), d_horner(z, kErfQ));
  }
};

struct RsqrtCore {
  TS_INLINE static f64v run(f64v x) { return d_div(d_set1(1.0), d_sqrt(x)); }
};

}  // namespace tallystick::TS_ISA
