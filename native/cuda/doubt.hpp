// What an entry of a bounded log does to an element (NUMERICS 14.5 to 14.8), from a binary64 w and its
// bound, or from the exact accumulator. The host's side of it is contracts/replay/boundaries.py and
// numerics/grid.py, whose words these are: elements of the grid have indices, neighbours differ by one.
#pragma once
#include "exact.hpp"

namespace tallystick::TS_ISA {

constexpr int64_t kDown = 0, kUp = 1;  // an entry's direction (14.2)

// --- the grid ------------------------------------------------------------------------------------
TS_INLINE int64_t infinity_index(int b) { return int64_t(255) << (b - 9); }
TS_INLINE int64_t index_of(float value, int b) {  // of no NaN
  const uint32_t u = float_bits(value);
  const int64_t size = (u & 0x7fffffffu) >> (32 - b);
  return u >> 31 ? -size : size;
}
TS_INLINE float value_at(int64_t index, int b) {  // a zero is +0
  const uint32_t size = static_cast<uint32_t>(index < 0 ? -index : index) << (32 - b);
  return bits_float(size | (index < 0 ? 0x80000000u : 0u));
}
// The boundary between element `low` and the next larger one. Infinity counts as 2^128 (13.2). Halves
// of binary32 values are exact in binary64.
TS_INLINE double boundary(int64_t low, int b) {
  double half[2];
  for (int i = 0; i < 2; ++i) {
    const int64_t index = low + i, top = infinity_index(b);
    half[i] = index >= top    ? 0x1p127
              : index <= -top ? -0x1p127
                              : static_cast<double>(value_at(index, b)) / 2;
  }
  return half[0] + half[1];
}
TS_INLINE double next_above(double x) {  // of a finite number
  const uint64_t u = double_bits(x);
  if (x == 0) return bits_double(1);
  return bits_double(x > 0 ? u + 1 : u - 1);
}
TS_INLINE double next_below(double x) { return -next_above(-x); }

// --- by w ----------------------------------------------------------------------------------------
// The boundaries in [w - 2E, w + 2E] (boundaries.py, around). `low` and `high` are the indices of R of
// its ends, rounded outwards. `close`: it has one boundary, which is surely within 2E of w. Where w or
// E is not finite the others mean nothing.
struct Around {
  bool finite, close;
  int64_t low, high;
};
TS_INLINE Around around(double w, double bound, int b) {
  Around found = {magnitude(w) <= 0x1p1000 && bound <= 0x1p1000, false, 0, 0};
  if (!found.finite) return found;
  const double reach = bound * 2;
  found.low = index_of(grid1(next_below(w - reach), b), b);
  found.high = index_of(grid1(next_above(w + reach), b), b);
  if (found.high - found.low != 1) return found;
  // The difference may be rounded (w near 0). The next larger number is not below it.
  found.close = next_above(magnitude(w - boundary(found.low, b))) <= reach;
  return found;
}

// Entries that are surely forged, and surely not, where no boundary is within 2E of w, so that R(w) is
// R(v*) (boundaries.py, read_beyond_doubt).
struct Beyond { bool forged, without_effect; };
TS_INLINE Beyond read_beyond_doubt(double w, double bound, const Around& near, int64_t direction,
                                   int b) {
  const int64_t size = near.low < 0 ? -near.low : near.low;
  if (!near.finite || near.low != near.high || size >= infinity_index(b)) return {false, false};
  const double above = magnitude(boundary(near.low, b) - w);
  const double below = magnitude(w - boundary(near.low - 1, b));
  const double read = direction == kDown ? above : below;
  const double other = direction == kDown ? below : above;
  const double slack = 0x1p-50 * (above + below);
  return {read - other - slack > 2 * bound, other - read - slack > 2 * bound};
}

// --- by the exact sum ----------------------------------------------------------------------------
// `times` times a number is added. A bound below 2^-310 counts as 2^-310: it is compared with multiples
// of 2^-298, and three times either is below the least of them.
TS_INLINE void add_times(ExactAcc& acc, double number, int times) {
  for (int i = 0; i < times; ++i) acc_add1(acc, number);
}
TS_INLINE double comparable(double bound) { return bound > 0 ? ts_max(bound, 0x1p-310) : 0.0; }
TS_INLINE int sign_of(ExactAcc acc) {
  acc_carry(acc);
  if (acc.digit[kAccDigits - 1] < 0) return -1;
  for (size_t i = 0; i < kAccDigits; ++i)
    if (acc.digit[i]) return 1;
  return 0;
}
// R(v* + number), as an index; all terms are finite.
TS_INLINE int64_t moved_index(const ExactAcc& acc, double number, int b) {
  ExactAcc moved = acc;
  acc_add1(moved, number);
  acc_carry(moved);
  return index_of(acc_round(moved, b), b);
}

// V and R(v*) of 14.5, and what 14.7 says of an entry.
struct Doubt {
  int64_t low, high, nearest;
  bool open;    // V has two elements
  bool forged;  // the entry
};
// Of |v* - boundary| - 3E, the sign; v* is above the boundary or below it.
TS_INLINE int beyond(const ExactAcc& acc, double edge, bool above, double bound) {
  ExactAcc left = acc;
  acc_add1(left, -edge);
  if (!above)
    for (size_t i = 0; i < kAccDigits; ++i) left.digit[i] = -left.digit[i];
  add_times(left, -bound, 3);
  return sign_of(left);
}
TS_INLINE Doubt doubt_of(const ExactAcc& acc, double exact_bound, int64_t direction, int b) {
  const double bound = comparable(exact_bound);
  const int64_t top = infinity_index(b);
  Doubt d = {moved_index(acc, -bound, b), moved_index(acc, bound, b),
             index_of(acc_round(acc, b), b), false, false};
  d.open = d.high == d.low + 1;
  if (d.open) return d;
  const bool no_upper = d.nearest == top, no_lower = d.nearest == -top;
  if (direction == kDown ? no_upper : no_lower) {
    d.forged = true;  // infinity has no boundary beyond it
    return d;
  }
  if (no_upper || no_lower) return d;  // r has no other boundary
  const double upper = boundary(d.nearest, b), lower = boundary(d.nearest - 1, b);
  const bool far = direction == kDown ? beyond(acc, upper, false, bound) > 0
                                      : beyond(acc, lower, true, bound) > 0;
  // The sign of 2·v* - upper - lower: the upper boundary is nearer, or the lower one.
  ExactAcc twice = acc;
  for (size_t i = 0; i < kAccDigits; ++i) twice.digit[i] *= 2;
  acc_add1(twice, -upper);
  acc_add1(twice, -lower);
  const int side = sign_of(twice);
  d.forged = far && (direction == kDown ? side < 0 : side > 0);
  return d;
}

}  // namespace tallystick::TS_ISA
