// The exact accumulator of NUMERICS 13.5: digits of 32 bits in 64-bit words. Carries stay in the
// words until a function needs them. It uses integers only: no rounding, hence no order.
#pragma once
#include "tallystick/exact_types.hpp"
#include "tallystick/grid.hpp"

namespace tallystick::TS_ISA {

// Each term adds less than 2^32 to a digit, so a word holds 2^31 of them.
constexpr size_t kCarryEvery = size_t(1) << 30;

TS_INLINE void acc_carry(ExactAcc& s) {
  int64_t carry = 0;
  for (size_t i = 0; i + 1 < kAccDigits; ++i) {
    const int64_t v = s.digit[i] + carry;
    s.digit[i] = v & 0xffffffff;
    carry = v >> 32;
  }
  s.digit[kAccDigits - 1] += carry;
}

// A binary64 that is a multiple of 2^-298 and at most 2^256, or not finite.
TS_INLINE void acc_add1(ExactAcc& s, double p) {
  const uint64_t u = double_bits(p);
  const uint32_t exponent = static_cast<uint32_t>(u >> 52) & 0x7ff;
  if (exponent == 0) return;  // a zero: no term is subnormal
  if (exponent == 0x7ff) {
    s.flags |= p != p ? kAccNan : p > 0 ? kAccPlus : kAccMinus;
    return;
  }
  // digit 0 is worth 2^-362; p = m·2^(exponent - 1075)
  const uint32_t at = exponent - (1075 - 362), shift = at & 31;
  const uint64_t m = (u & 0xfffffffffffffu) | (uint64_t(1) << 52);
  const int64_t sign = static_cast<int64_t>(u) >> 63;
  const uint64_t low = m << shift, high = shift ? m >> (64 - shift) : 0;
  int64_t* d = s.digit + (at >> 5);
  d[0] += (static_cast<int64_t>(low & 0xffffffff) ^ sign) - sign;
  d[1] += (static_cast<int64_t>(low >> 32) ^ sign) - sign;
  d[2] += (static_cast<int64_t>(high) ^ sign) - sign;
}

template <class F>
TS_INLINE void acc_add_all(ExactAcc& s, size_t n, const F& term) {
  for (size_t from = 0; from < n; from += kCarryEvery) {
    const size_t to = ts_min(n, from + kCarryEvery);
    for (size_t i = from; i < to; ++i) acc_add1(s, term(i));
    acc_carry(s);
  }
}

// R of the sum (13.2, 13.4); the digits carried.
TS_MEMBER inline float acc_round(const ExactAcc& s, int b) {
  constexpr uint32_t kBoth = kAccPlus | kAccMinus;
  if ((s.flags & kAccNan) || (s.flags & kBoth) == kBoth) return bits_float(kCanonicalNan);
  if (s.flags & kBoth) return bits_float(s.flags & kAccPlus ? 0x7f800000u : 0xff800000u);
  const bool negative = s.digit[kAccDigits - 1] < 0;
  ExactAcc a = s;
  if (negative) {
    for (int64_t& d : a.digit) d = -d;
    acc_carry(a);
  }
  int top = kAccDigits - 1;
  while (top >= 0 && a.digit[top] == 0) --top;
  if (top < 0) return 0.0f;
  // The leading 53 bits, rounded to odd: R keeps at most 24, so it sees every side of a boundary.
  const auto digit = [&](int i) { return i < 0 ? uint64_t(0) : static_cast<uint64_t>(a.digit[i]); };
  const int length = 64 - leading_zeros(digit(top));  // 1..32
  unsigned __int128 lead = (static_cast<unsigned __int128>(digit(top)) << 64) |
                           (digit(top - 1) << 32) | digit(top - 2);
  const int drop = 64 + length - 53;
  uint64_t kept = static_cast<uint64_t>(lead >> drop);
  bool rest = (lead & ((static_cast<unsigned __int128>(1) << drop) - 1)) != 0;
  for (int i = top - 3; i >= 0 && !rest; --i) rest = a.digit[i] != 0;
  kept |= rest;
  // A power of two from 2^-414 to 2^289, so the product is exact.
  const int exponent = 32 * (top - 2) + drop - 362;
  const double size =
      static_cast<double>(kept) * bits_double(static_cast<uint64_t>(exponent + 1023) << 52);
  return grid1(negative ? -size : size, b);
}

#ifndef __CUDACC__
// The record: 79 bytes of two's complement in units of 2^-298, and the flags. The two lowest digits
// are below that unit and zero, every term being a multiple of it.
inline void acc_store(const ExactAcc& s, uint8_t* record) {
  uint8_t all[4 * (kAccDigits - 2)];
  for (size_t i = 2; i < kAccDigits; ++i)
    for (size_t k = 0; k < 4; ++k)
      all[4 * (i - 2) + k] = static_cast<uint8_t>(s.digit[i] >> (8 * k));
  std::memcpy(record, all, kAccBytes - 1);
  record[kAccBytes - 1] = static_cast<uint8_t>(s.flags);
}

inline void acc_load(const uint8_t* record, ExactAcc& s) {
  s = ExactAcc{};
  for (size_t i = 2; i < kAccDigits; ++i)
    for (size_t k = 0; k < 4 && 4 * (i - 2) + k < kAccBytes - 1; ++k)
      s.digit[i] |= static_cast<int64_t>(record[4 * (i - 2) + k]) << (8 * k);
  s.digit[kAccDigits - 1] = (s.digit[kAccDigits - 1] ^ 0x800000) - 0x800000;  // 24 bits, signed
  s.flags = record[kAccBytes - 1] & (kAccNan | kAccPlus | kAccMinus);
}
#endif

}  // namespace tallystick::TS_ISA
