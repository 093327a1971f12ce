// The primitives on 64-bit integers that C++ does not have (NUMERICS 10.8, 10.10, 10.11).
#pragma once
#include "tallystick/ts_base.hpp"

namespace tallystick::TS_ISA {

// Modulo 2^64: unsigned arithmetic wraps, signed overflow would be undefined.
TS_INLINE int64_t wrapped(uint64_t x) { return static_cast<int64_t>(x); }
TS_INLINE int64_t w_add(int64_t a, int64_t b) {
  return wrapped(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
}
TS_INLINE int64_t w_sub(int64_t a, int64_t b) {
  return wrapped(static_cast<uint64_t>(a) - static_cast<uint64_t>(b));
}
TS_INLINE int64_t w_mul(int64_t a, int64_t b) {
  return wrapped(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
}

// Of b that is not 0.
TS_INLINE int64_t w_floor_divide(int64_t a, int64_t b) {
  if (b == -1) return w_sub(0, a);  // -2^63 wraps
  const int64_t q = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? q - 1 : q;
}

// A device shifts by its own rule where the count is not below the width.
TS_INLINE bool is_shift(int64_t b) { return static_cast<uint64_t>(b) < 64; }
TS_INLINE int64_t w_left_shift(int64_t a, int64_t b) {
  return is_shift(b) ? wrapped(static_cast<uint64_t>(a) << b) : 0;
}
TS_INLINE int64_t w_right_shift(int64_t a, int64_t b) { return a >> (is_shift(b) ? b : 63); }

}  // namespace tallystick::TS_ISA
