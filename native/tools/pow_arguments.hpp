// Arguments for tests of pow: special, exact, near 1, in range and arbitrary.
#pragma once
#include <cmath>
#include <cstdint>

#include "reference.hpp"

namespace reference {

inline constexpr uint32_t kSpecial[] = {
    0,          0x80000000u, 0x3f800000u, 0xbf800000u, 0x7f800000u, 0xff800000u, 0x7fc00000u,
    1,          0x80000001u, 0x7f7fffffu, 0x00800000u, 0x3f000000u, 0x40000000u, 0xc0000000u,
    0x40400000u, 0xc0400000u, 0x7fa00001u, 0xbf000000u, 0x3f7fffffu, 0x3f800001u};
inline constexpr uint32_t kSpecials = sizeof kSpecial / sizeof *kSpecial;

inline void pow_arguments(uint64_t r, uint32_t a, uint32_t b, float* x, float* y) {
  switch (r % 8) {
    case 0:  // any bits
      *x = from_bits(a), *y = from_bits(b);
      break;
    case 1: {  // a result inside the range
      *x = from_bits(a & 0x7fffffffu);
      const double limit = 150 / (std::fabs(std::log2(static_cast<double>(*x))) + 1e-30);
      *y = static_cast<float>((b / 2147483648.0 - 1) * limit);
      break;
    }
    case 2:  // small integers
      *x = static_cast<float>(a % 4096 + 1) * ((b & 1) ? 1.0f : -1.0f);
      *y = static_cast<float>(static_cast<int>((b >> 8) % 33) - 10);
      break;
    case 3: {  // squares to half-integer powers
      const float root = static_cast<float>(a % 4000 + 1);
      *x = std::ldexp(root * root, 2 * (static_cast<int>(b % 60) - 30));
      *y = static_cast<float>((b >> 8) % 15 + 1) * 0.5f;
      break;
    }
    case 4:  // near 1, large exponents
      *x = from_bits(0x3f800000u + a % 2001 - 1000);
      *y = from_bits((b % 0x4f000000u) | ((b & 1) << 31));
      break;
    case 5:  // powers of two
      *x = std::ldexp(1.0f, static_cast<int>(a % 277) - 149);
      *y = static_cast<float>(static_cast<int>(b % 2001) - 1000) / 8.0f;
      break;
    case 6:
      *x = from_bits((r >> 20) & 1 ? kSpecial[a % kSpecials] : a);
      *y = from_bits(kSpecial[b % kSpecials]);
      break;
    default: {  // perfect powers to fractions
      const int k = 1 << (b % 5);
      *x = static_cast<float>(std::pow(static_cast<double>(a % 40 + 1), k));
      *y = static_cast<float>((b >> 8) % 30 + 1) / static_cast<float>(k) * ((b >> 20) & 1 ? 1.0f : -1.0f);
    }
  }
}

}  // namespace reference
