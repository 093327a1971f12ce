// Sums decided exactly on the device (NUMERICS 13.3 to 13.5): the threads of a warp or of a block
// share the terms of one element. First in twice binary64's precision with a bound, which decides
// almost always; else in the exact accumulator. Both give R of the exact sum, so no order shows.
#pragma once
#include "device.hpp"

#include "tallystick/exact_acc.hpp"
#include "tallystick/exact_sum.hpp"
#include "tallystick/simd_f32.hpp"

namespace tallystick::TS_ISA {

TS_INLINE double magnitude(double x) { return bits_double(double_bits(x) & 0x7fffffffffffffffu); }

// A running sum: the leading part, the sum of the errors, and that of the magnitudes.
struct Running {
  double sum, low, size;
  TS_INLINE void take(double p) {
    low += two_sum(sum, p);
    size += magnitude(p);
  }
  TS_INLINE void merge(double s, double l, double z) {
    low += two_sum(sum, s) + l;
    size += z;
  }
};

// The warp's terms together. Every lane has lane 0's result, for merging is not symmetric.
TS_INLINE Running warp_merged(Running r) {
  TS_UNROLL
  for (uint32_t s = kWarp / 2; s >= 1; s /= 2)
    r.merge(warp_xor(r.sum, s), warp_xor(r.low, s), warp_xor(r.size, s));
  return {warp_from(r.sum, 0), warp_from(r.low, 0), warp_from(r.size, 0)};
}

// term(k) for k = first, first + step ... below n. The loads of four terms do not wait for each other.
template <class Term>
TS_INLINE Running running(int64_t first, int64_t n, int64_t step, const Term& term) {
  Running r = {0.0, 0.0, 0.0};
  int64_t k = first;
  for (; k + 3 * step < n; k += 4 * step) {
    const double a = term(k), b = term(k + step), c = term(k + 2 * step), d = term(k + 3 * step);
    r.take(a);
    r.take(b);
    r.take(c);
    r.take(d);
  }
  for (; k < n; k += step) r.take(term(k));
  return r;
}

// One thread's share in the accumulator, its digits carried. The host gives at most 2^32 terms to a
// warp or more, so a thread has fewer than kCarryEvery of them.
template <class Term>
TS_INLINE void accumulate(ExactAcc& acc, int64_t first, int64_t n, int64_t step, const Term& term) {
  for (int64_t k = first; k < n; k += step) acc_add1(acc, term(k));
  acc_carry(acc);
}

// The lanes' accumulators added up, in every lane: digits of at most 37 bits.
TS_INLINE void warp_added(ExactAcc& acc) {
  TS_ROLLED
  for (size_t i = 0; i < kAccDigits; ++i)
    for (uint32_t s = kWarp / 2; s >= 1; s /= 2) acc.digit[i] += warp_xor(acc.digit[i], s);
  for (uint32_t s = kWarp / 2; s >= 1; s /= 2) acc.flags |= warp_xor(acc.flags, s);
}

// The accumulator of n terms, which a warp sums together, its digits carried. Every lane gets it.
template <class Term>
TS_INLINE ExactAcc warp_total(int64_t n, const Term& term) {
  ExactAcc acc;
  accumulate(acc, lane_index(), n, kWarp, term);
  warp_added(acc);
  acc_carry(acc);
  return acc;
}

// R(v*) of n terms, which a warp sums together. Every lane gets it.
template <class Term>
TS_INLINE float warp_exact(int64_t n, int b, const Term& term) {
  const Running r = warp_merged(running(lane_index(), n, kWarp, term));
  float value;
  if (sum_decide(r.sum, r.low, r.size, static_cast<double>(n + 2 * kWarp), b, &value)) return value;
  return acc_round(warp_total(n, term), b);
}

// The accumulator of n terms, which a block of at most 1,024 threads sums together. Thread 0 gets it,
// its digits carried.
constexpr size_t kExactRoom = (1024 / kWarp) * (kAccDigits + 1);  // words of shared memory
template <class Term>
TS_INLINE ExactAcc block_total(int64_t n, const Term& term, int64_t* room) {
  ExactAcc acc;
  accumulate(acc, thread_index(), n, thread_count(), term);
  warp_added(acc);
  if (lane_index() == 0) {
    int64_t* own = room + warp_index() * (kAccDigits + 1);
    for (size_t i = 0; i < kAccDigits; ++i) own[i] = acc.digit[i];
    own[kAccDigits] = acc.flags;
  }
  block_barrier();
  if (thread_index() == 0) {
    for (uint32_t w = 1; w < thread_count() / kWarp; ++w) {
      const int64_t* other = room + w * (kAccDigits + 1);
      for (size_t i = 0; i < kAccDigits; ++i) acc.digit[i] += other[i];
      acc.flags |= static_cast<uint32_t>(other[kAccDigits]);
    }
    acc_carry(acc);
  }
  block_barrier();  // the room may be used again
  return acc;
}
// R(v*) of them, in thread 0.
template <class Term>
TS_INLINE float block_exact(int64_t n, int b, const Term& term, int64_t* room) {
  const ExactAcc acc = block_total(n, term, room);
  return thread_index() == 0 ? acc_round(acc, b) : 0.0f;
}

}  // namespace tallystick::TS_ISA
