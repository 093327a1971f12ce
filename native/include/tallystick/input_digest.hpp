// A digest of what a function of one binary32 gives over a range of arguments. It is a sum, so that
// any machine may take the arguments in any order.
#pragma once
#include "tallystick/ts_base.hpp"

namespace tallystick::TS_ISA {

TS_INLINE uint64_t mix64(uint64_t z) {  // splitmix64
  z += 0x9e3779b97f4a7c15ull;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

// The digest of a range is the sum, modulo 2^64, of this number for each argument x, by the bits of
// x and of f(x).
TS_INLINE uint64_t digest_term(uint32_t x, uint32_t y) {
  return mix64((static_cast<uint64_t>(x) << 32) | y);
}

}  // namespace tallystick::TS_ISA
