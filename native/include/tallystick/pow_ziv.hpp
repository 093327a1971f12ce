// The slow path of pow: x^y in multi-limb fixed point, with an error bound, at growing precision.
// Reached for about one input in 2^17.
#pragma once
#include "tallystick/ts_base.hpp"

namespace tallystick::TS_ISA {

typedef unsigned __int128 uint128;

// A nonnegative number: limb N-1 is the integer part, the rest the fraction. One unit is the last
// bit, 2^(-64 (N-1)). All operations truncate.
template <int N>
struct Fixed {
  uint64_t w[N] = {};

  TS_MEMBER static Fixed integer(uint64_t v) {
    Fixed f;
    f.w[N - 1] = v;
    return f;
  }
  TS_MEMBER bool zero() const {
    for (int i = 0; i < N; ++i)
      if (w[i]) return false;
    return true;
  }
  TS_MEMBER bool less(const Fixed& o) const {
    for (int i = N; i-- > 0;)
      if (w[i] != o.w[i]) return w[i] < o.w[i];
    return false;
  }
  TS_MEMBER void add(const Fixed& o) {
    uint64_t carry = 0;
    for (int i = 0; i < N; ++i) {
      const uint128 s = static_cast<uint128>(w[i]) + o.w[i] + carry;
      w[i] = static_cast<uint64_t>(s);
      carry = static_cast<uint64_t>(s >> 64);
    }
  }
  TS_MEMBER void sub(const Fixed& o) {
    uint64_t borrow = 0;
    for (int i = 0; i < N; ++i) {
      const uint128 d = static_cast<uint128>(w[i]) - o.w[i] - borrow;
      w[i] = static_cast<uint64_t>(d);
      borrow = static_cast<uint64_t>(d >> 64) & 1u;
    }
  }
  TS_MEMBER void mul_small(uint64_t m) {
    uint64_t carry = 0;
    for (int i = 0; i < N; ++i) {
      const uint128 p = static_cast<uint128>(w[i]) * m + carry;
      w[i] = static_cast<uint64_t>(p);
      carry = static_cast<uint64_t>(p >> 64);
    }
  }
  // d < 2^52, so that 12 bits of the next limb fit beside a rest. A compiler for a device divides
  // 128 bits by way of approximate float instructions.
  TS_MEMBER void div_small(uint64_t d) {
    uint64_t rest = 0;
    for (int i = N; i-- > 0;) {
      uint64_t quotient = 0;
      for (int left = 64; left > 0;) {
        const int bits = left < 12 ? left : 12;
        left -= bits;
        const uint64_t v = (rest << bits) | ((w[i] >> left) & ((1u << bits) - 1u));
        quotient = (quotient << bits) | (v / d);
        rest = v % d;
      }
      w[i] = quotient;
    }
  }
  TS_MEMBER void mul(const Fixed& o) {
    uint64_t full[2 * N] = {};
    for (int i = 0; i < N; ++i) {
      uint64_t carry = 0;
      for (int j = 0; j < N; ++j) {
        const uint128 p = static_cast<uint128>(w[i]) * o.w[j] + full[i + j] + carry;
        full[i + j] = static_cast<uint64_t>(p);
        carry = static_cast<uint64_t>(p >> 64);
      }
      full[i + N] = carry;
    }
    for (int i = 0; i < N; ++i) w[i] = full[i + N - 1];
  }
  TS_MEMBER void shift_right(int bits) {
    for (; bits >= 64; bits -= 64) {
      for (int i = 0; i + 1 < N; ++i) w[i] = w[i + 1];
      w[N - 1] = 0;
    }
    if (!bits) return;
    for (int i = 0; i < N; ++i)
      w[i] = (w[i] >> bits) | (i + 1 < N ? w[i + 1] << (64 - bits) : 0);
  }
};

// artanh(num/den) for 0 <= num/den <= 1/3, den < 2^26. Each term loses at most three units.
template <int N>
TS_OUTLINE Fixed<N> artanh_ratio(uint64_t num, uint64_t den) {
  Fixed<N> power = Fixed<N>::integer(num);
  power.div_small(den);
  Fixed<N> sum = power;
  for (uint64_t k = 3; !power.zero(); k += 2) {
    power.mul_small(num * num);
    power.div_small(den * den);
    Fixed<N> term = power;
    term.div_small(k);
    sum.add(term);
  }
  return sum;
}

// e^f for 0 <= f <= 1, by its series.
template <int N>
TS_OUTLINE Fixed<N> exp_series(const Fixed<N>& f) {
  Fixed<N> term = Fixed<N>::integer(1), sum = term;
  for (uint64_t k = 1; !term.zero(); ++k) {
    term.mul(f);
    term.div_small(k);
    sum.add(term);
  }
  return sum;
}

// E * 2^k rounded to binary32. 53 bits rounded to odd survive the second rounding.
template <int N>
TS_OUTLINE float round_fixed(const Fixed<N>& e, int k) {
  // 1 <= E < 4: two bits of the integer limb, 51 of the fraction, the rest sticky.
  uint64_t top = (e.w[N - 1] << 51) | (e.w[N - 2] >> 13);
  uint64_t rest = e.w[N - 2] << 51;
  for (int i = 0; i < N - 2; ++i) rest |= e.w[i];
  if (rest) top |= 1u;
  const double scale = bits_double(static_cast<uint64_t>(1023 + k - 51) << 52);
  return static_cast<float>(static_cast<double>(top) * scale);
}

// x = m 2^e, y = yn 2^g in magnitude (m, yn < 2^24, x not 1, 2^-151 < x^y < 2^130). Returns true if
// the precision sufficed; *result is the best guess in any case.
template <int N>
TS_OUTLINE bool pow_fixed(uint32_t m, int e, bool y_negative, uint32_t yn, int g, float* result) {
  // x = (a/b) 2^e with a/b in [sqrt(1/2), sqrt(2)).
  uint64_t a = m, b = 1;
  while (b * 2 <= a) b *= 2, ++e;
  if (a * a > 2 * b * b) b *= 2, ++e;
  const bool mantissa_negative = a < b;
  Fixed<N> log = artanh_ratio<N>(mantissa_negative ? b - a : a - b, a + b);
  log.mul_small(2);
  Fixed<N> ln2 = artanh_ratio<N>(1, 3);
  ln2.mul_small(2);
  bool log_negative = mantissa_negative;
  if (e != 0) {
    log_negative = e < 0;
    Fixed<N> whole = ln2;
    whole.mul_small(static_cast<uint64_t>(log_negative ? -e : e));
    if (mantissa_negative == log_negative) whole.add(log);
    else whole.sub(log);
    log = whole;
  }
  log.mul_small(yn);
  if (g < 0) log.shift_right(-g);
  for (; g > 0; --g) log.mul_small(2);
  // |y ln x| = k ln 2 + f, 0 <= f < ln 2.
  int k = 0;
  while (!log.less(ln2)) log.sub(ln2), ++k;
  if (log_negative != y_negative) {
    Fixed<N> f = ln2;
    f.sub(log);
    log = f;
    k = -k - 1;
  }
  Fixed<N> value = exp_series(log), low = value, slack;
  // Units lost: two series of at most 32 N terms at three each; ln 2 up to 150 times; all of that
  // times |y| < 2^31, since |ln x| > 2^-25 and |y ln x| < 105; the last series. Below 2^54.
  slack.w[0] = 1ull << 60;
  value.add(slack);
  low.sub(slack);
  *result = round_fixed(value, k);
  return *result == round_fixed(low, k);
}

}  // namespace tallystick::TS_ISA
