// log, log1p and log2: x = 2^e m with m in [sqrt(1/2), sqrt(2)), log m = 2 artanh((m-1)/(m+1)).
// Binary64 throughout, rounded once to binary32; proof in docs/proofs/elementary.md.
#pragma once
#include "tallystick/elementary_exp.hpp"

namespace tallystick::TS_ISA {

// (2 artanh(s) - 2s) / s^3 in powers of s^2, |s| <= 3 - 2 sqrt(2)
TS_CONSTANT double kArtanhTail[] = {
    0x1.5555555555592p-1, 0x1.999999997ff58p-2, 0x1.24924941dc60dp-2, 0x1.c71c5218e11ccp-3,
    0x1.74663bf27f228p-3, 0x1.39a2024cdf70ap-3, 0x1.2f02bc1e5f33ep-3};

struct LogParts {
  f64v e;
  f64v m;
};

// For a positive normal binary64. Other arguments give bits that the callers overwrite.
TS_INLINE LogParts log_parts(f64v x) {
  const f64v offset = d_isub(x, d_set1_bits(0x3fe6a09e667f3bcdull));  // bits of sqrt(1/2)
  const f64v field = d_and(offset, d_set1_bits(0xfff0000000000000ull));
  const f64v biased = d_shr<52>(d_iadd(offset, d_set1_bits(0x4000000000000000ull)));
  const f64v e = d_sub(d_or(biased, d_set1(0x1p52)), d_set1(0x1p52 + 1024.0));
  return {e, d_isub(x, field)};
}

// 2 artanh(num/den) as 2s + tail
struct ArtanhParts {
  f64v s2;
  f64v tail;
};
TS_INLINE ArtanhParts artanh_parts(f64v num, f64v den) {
  const f64v s = d_div(num, den);
  const f64v z = d_mul(s, s);
  return {d_add(s, s), d_mul(d_mul(s, z), d_horner(z, kArtanhTail))};
}

TS_INLINE f64v log_finish(f64v e, ArtanhParts a) {
  return d_fma(e, d_set1(kLn2Hi), d_add(a.s2, d_fma(e, d_set1(kLn2Lo), a.tail)));
}

struct LogCore {
  TS_INLINE static f64v run(f64v x) {
    const LogParts p = log_parts(x);
    const f64v one = d_set1(1.0);
    return log_finish(p.e, artanh_parts(d_sub(p.m, one), d_add(p.m, one)));
  }
};

struct Log2Core {
  TS_INLINE static f64v run(f64v x) {
    const LogParts p = log_parts(x);
    const f64v one = d_set1(1.0);
    const ArtanhParts a = artanh_parts(d_sub(p.m, one), d_add(p.m, one));
    return d_fma(d_add(a.s2, a.tail), d_set1(kLog2E), p.e);
  }
};

struct Log1pCore {
  TS_INLINE static f64v run(f64v x) {
    const f64v one = d_set1(1.0), two = d_set1(2.0);
    const LogParts p = log_parts(d_add(x, one));
    // Where 1 + x stays in m's range, m - 1 is x itself, whatever the sum lost.
    const f64m near = d_eq(p.e, d_set1(0.0));
    const f64v num = d_select(near, x, d_sub(p.m, one));
    const f64v den = d_select(near, d_add(x, two), d_add(p.m, one));
    return log_finish(p.e, artanh_parts(num, den));
  }
};

}  // namespace tallystick::TS_ISA
