// `exact/1` on a device (NUMERICS 17): where blocks of terms lie in scratch memory, which group an
// element belongs to, and the end of an element of the output.
//
// A line's integers are laid out block by block, each block padded with zeros to a multiple of 64
// positions: the slices that the product kernels copy. Zeros add nothing to a sum of integers.
#pragma once
#include "device.hpp"

#include "tallystick/exact_split.hpp"
#include "tallystick/simd_f32.hpp"

namespace tallystick::TS_ISA {

constexpr int64_t kSlice = 64;  // positions

// 17.2 in index values, and the layout.
struct Blocks {
  int64_t terms;              // of a DOT
  int64_t segment, segments;  // index values of a segment; number of segments
  int64_t length, each;       // of a block; blocks of a segment
  int64_t padded, count;      // positions of a block; blocks in all
  int64_t pitch;              // positions of a line: those behind its last term are left out
};

// 17.3: the largest magnitude of line x of batch g in segment s, as bits, is
// mu[((g % period)·lines + x / each)·segments + s]; whole[(g % period)·lines + x / each] is the
// largest of all segments.
struct Groups {
  const uint32_t *mu, *whole;
  int64_t period, lines, each, segments;
};
TS_INLINE int64_t group_of(const Groups& p, int64_t g, int64_t x) {
  if (p.period != 1) g -= quotient_of_any(g, p.period) * p.period;
  else g = 0;
  return g * p.lines + (p.each == 1 ? x : quotient_of_any(x, p.each));
}

// 17.5: the exponent e - (B-1) of a group; 0 where its integers are zeros.
TS_INLINE int unit_exponent(uint32_t mu, int width) {
  return mu == 0 || mu >= kInfinityBits ? 0 : exact_exponent(mu) - (width - 1);
}
// 17.6: the total with one more block. Its value, sum·2^exponent, is exact, so the fma rounds as the
// addition does; a sum of 0 adds +0, and the total is never -0.
TS_INLINE double with_block(double total, double sum, int exponent) {
  return fma1(sum, exact_power(exponent), total);
}

// Element (z, i, j) of a launch is element (g, r, c) of the output, g = first_batch + z and so on,
// which lies at ((c / plane·batches + g)·all_rows + r)·plane + c % plane.
struct Output {
  float* out;
  int64_t rows, columns;  // of the launch
  int64_t first_batch, first_row, first_column;
  int64_t batches, all_rows, plane;
  // 2.5, 2.6: the element last[g·last_batch + r·last_row + c % plane·last_column] is added.
  const float* last;
  int64_t last_batch, last_row, last_column;
  int64_t scales, adds, scales_last;
  F32 alpha, beta;
};
// Stores the DOT d and what follows it.
TS_INLINE void put_dot(const Output& p, int64_t z, int64_t i, int64_t j, float d) {
  const int64_t g = p.first_batch + z, r = p.first_row + i, c = p.first_column + j;
  const int64_t image = c < p.plane ? 0 : quotient_of_any(c, p.plane), place = c - image * p.plane;
  if (p.scales) d = d * p.alpha.value;
  if (p.adds) {
    const float last = p.last[g * p.last_batch + r * p.last_row + place * p.last_column];
    d = d + (p.scales_last ? last * p.beta.value : last);
  }
  if (has_fault(Fault::one_bit)) d = bits_float(float_bits(d) ^ 1);
  put1(p.out + ((image * p.batches + g) * p.all_rows + r) * p.plane + place, d);
}

}  // namespace tallystick::TS_ISA
