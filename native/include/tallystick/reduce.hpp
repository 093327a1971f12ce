// The SUM rule of NUMERICS 3.1 and the maxima of 1.11, over values that a functor produces, so that
// a kernel sums exp(x-m) or d*d without storing them.
//
// A functor is called as f(i, n) and returns the values of elements i..i+n-1 in the first n lanes;
// n is kF32Lanes except at a tail, where the other lanes are ignored (they may hold anything).
//
//   const float s = sum_of(count, [&](size_t i, size_t n) TS_LAMBDA {
//     return cr_exp(v_sub(v_load_any(x + i, n), m));
//   });
//
// The functor is called once per register, in ascending order of i, so it may also store.
#pragma once
#include "tallystick/simd_f32.hpp"
#include "tallystick/sum_rule.hpp"

namespace tallystick::TS_ISA {

constexpr size_t kSumRegs = kSumLanes / kF32Lanes;

TS_INLINE f32v v_minus_zero() { return v_bits(kMinusZero); }

// Halving tree over the 32 lanes held in kSumRegs registers.
TS_INLINE float lanes_tree(f32v* acc) {
  for (size_t h = kSumRegs / 2; h >= 1; h /= 2)
    for (size_t j = 0; j < h; ++j) acc[j] = v_add(acc[j], acc[j + h]);
  return v_tree(acc[0]);
}

// One block: elements [base, base + n) of f, 1 <= n <= 256, base a multiple of 256.
template <class F>
TS_INLINE float sum_block(size_t base, size_t n, const F& f) {
  f32v acc[kSumRegs];
  for (size_t r = 0; r < kSumRegs; ++r) acc[r] = v_minus_zero();
  size_t i = 0;
  for (; i + kSumLanes <= n; i += kSumLanes)
    for (size_t r = 0; r < kSumRegs; ++r)
      acc[r] = v_add(acc[r], f(base + i + r * kF32Lanes, kF32Lanes));
  size_t r = 0;
  for (; i + kF32Lanes <= n && r < kSumRegs; i += kF32Lanes, ++r)
    acc[r] = v_add(acc[r], f(base + i, kF32Lanes));
  if (kF32Lanes > 1 && i < n && r < kSumRegs) {
    const f32v x = f(base + i, n - i);
    acc[r] = v_add(acc[r], v_blend(m_first(n - i), x, v_minus_zero()));
  }
  return lanes_tree(acc);
}

TS_INLINE float sum_block_of(const float* x, size_t n) {
  return sum_block(0, n, [=](size_t i, size_t m) TS_LAMBDA { return v_load_any(x + i, m); });
}

// Block values and their blocks' values, and so on: SUM of a stream of block values.
struct SumLevels {
  static constexpr size_t kLevels = 5;  // 256^6 elements
  float value[kLevels][kSumBlock];
  size_t held[kLevels];
  size_t seen[kLevels];

  TS_INLINE void begin() {
    for (size_t k = 0; k < kLevels; ++k) held[k] = seen[k] = 0;
  }
  __attribute__((noinline)) void push(float v, size_t level) {
    for (size_t k = level; k < kLevels; ++k) {
      ++seen[k];
      if (held[k] < kSumBlock) {
        value[k][held[k]++] = v;
        return;
      }
      // More values follow, so the held block is one of several: its value goes a level up.
      const float full = sum_block_of(value[k], kSumBlock);
      value[k][0] = v;
      held[k] = 1;
      v = full;
    }
  }
  __attribute__((noinline)) float finish() {
    for (size_t k = 0; k + 1 < kLevels; ++k) {
      if (seen[k] == 1) return value[k][0];
      const float v = sum_block_of(value[k], held[k]);
      if (seen[k] <= kSumBlock) return v;
      push(v, k + 1);
    }
    return value[kLevels - 1][0];
  }
};

// SUM of at most 4 block values: the halving tree without its absent lanes (3.2).
TS_INLINE float few_blocks_tree(const float* v, size_t n) {
  if (n == 2) return v[0] + v[1];
  if (n == 3) return (v[0] + v[2]) + v[1];
  return (v[0] + v[2]) + (v[1] + v[3]);
}

template <class F>
__attribute__((noinline)) float sum_of_blocks(size_t n, const F& f) {
  if (n <= 4 * kSumBlock) {
    float few[4];
    for (size_t b = 0; b * kSumBlock < n; ++b)
      few[b] = sum_block(b * kSumBlock, ts_min(kSumBlock, n - b * kSumBlock), f);
    return few_blocks_tree(few, ceil_div(n, kSumBlock));
  }
  SumLevels levels;
  levels.begin();
  for (size_t b = 0; b < n; b += kSumBlock)
    levels.push(sum_block(b, ts_min(kSumBlock, n - b), f), 0);
  return levels.finish();
}

// SUM of f's n elements; n = 0 gives +0.
template <class F>
TS_INLINE float sum_of(size_t n, const F& f) {
  if (n == 0) return 0.0f;
  if (n <= kSumBlock) return sum_block(0, n, f);
  return sum_of_blocks(n, f);
}

// SUM of a contiguous row of n floats.
TS_INLINE float sum_row(const float* x, size_t n) {
  return sum_of(n, [=](size_t i, size_t m) TS_LAMBDA { return v_load_any(x + i, m); });
}

// The lanes' values of `pick` over f's n elements; `none` is neutral.
template <f32v (*pick)(f32v, f32v), class F>
TS_INLINE f32v extremes_of(size_t n, f32v none, const F& f) {
  f32v acc[4] = {none, none, none, none};
  size_t i = 0;
  for (; i + 4 * kF32Lanes <= n; i += 4 * kF32Lanes)
    for (size_t r = 0; r < 4; ++r) acc[r] = pick(acc[r], f(i + r * kF32Lanes, kF32Lanes));
  for (; i + kF32Lanes <= n; i += kF32Lanes) acc[0] = pick(acc[0], f(i, kF32Lanes));
  if (i < n) acc[1] = pick(acc[1], v_blend(m_first(n - i), f(i, n - i), none));
  return pick(pick(acc[0], acc[1]), pick(acc[2], acc[3]));
}
// Maximum of f's n elements by NUMERICS 1.11, n = 0 gives -inf; minimum, n = 0 gives inf.
template <class F>
TS_INLINE float max_of(size_t n, const F& f) {
  return v_reduce_max(extremes_of<v_max>(n, v_bits(0xff800000u), f));
}
template <class F>
TS_INLINE float min_of(size_t n, const F& f) {
  return v_reduce_min(extremes_of<v_min>(n, v_bits(0x7f800000u), f));
}
TS_INLINE float max_row(const float* x, size_t n) {
  return max_of(n, [=](size_t i, size_t m) TS_LAMBDA { return v_load_any(x + i, m); });
}
TS_INLINE float min_row(const float* x, size_t n) {
  return min_of(n, [=](size_t i, size_t m) TS_LAMBDA { return v_load_any(x + i, m); });
}

// Column sums: SUM over rows i of f(i, j, m), the values at columns j..j+m-1 of row i, for columns
// [col, col + cols), cols <= kColTile. 32 lane accumulators per column stay in L1.
constexpr size_t kColTile = 64;

// Floats of scratch that sum_columns needs for `rows` rows: the block values of every level.
TS_INLINE size_t column_scratch(size_t rows) {
  size_t total = 0;
  for (size_t n = rows; n > kSumBlock;) {
    n = ceil_div(n, kSumBlock);
    total += n * kColTile;
  }
  return total;
}

template <class F>
TS_INLINE void sum_columns_block(size_t base, size_t rows, size_t col, size_t cols, float* out,
                                 const F& f) {
  alignas(64) float acc[kSumLanes][kColTile];
  const size_t used = ts_min(rows, kSumLanes);
  // Absent lanes are neutral (3.2), but the tree reads them.
  for (size_t l = used; l < kSumLanes; ++l)
    for (size_t j = 0; j < cols; j += kF32Lanes) v_store(&acc[l][j], v_minus_zero());
  for (size_t i = 0; i < rows; ++i) {
    float* a = acc[i % kSumLanes];
    size_t j = 0;
    if (i < kSumLanes) {  // -0 + x is x
      for (; j + kF32Lanes <= cols; j += kF32Lanes) v_store(a + j, f(base + i, col + j, kF32Lanes));
      if (j < cols) v_store(a + j, f(base + i, col + j, cols - j));
    } else {
      for (; j + kF32Lanes <= cols; j += kF32Lanes)
        v_store(a + j, v_add(v_load(a + j), f(base + i, col + j, kF32Lanes)));
      if (j < cols) v_store(a + j, v_add(v_load(a + j), f(base + i, col + j, cols - j)));
    }
  }
  for (size_t s = kSumLanes / 2; s >= 1; s /= 2)
    for (size_t l = 0; l < s; ++l)
      for (size_t j = 0; j < cols; j += kF32Lanes)
        v_store(&acc[l][j], v_add(v_load(&acc[l][j]), v_load(&acc[l + s][j])));
  size_t j = 0;
  for (; j + kF32Lanes <= cols; j += kF32Lanes) v_store(out + j, v_load(&acc[0][j]));
  if (j < cols) v_store_n(out + j, v_load(&acc[0][j]), cols - j);
}

// out[0..cols): the SUMs, not yet canonical. scratch: column_scratch(rows) floats.
template <class F>
TS_INLINE void sum_columns(size_t rows, size_t col, size_t cols, float* out, float* scratch,
                           const F& f) {
  if (rows == 0) {
    for (size_t j = 0; j < cols; ++j) out[j] = 0.0f;
    return;
  }
  if (rows <= kSumBlock) {
    sum_columns_block(0, rows, col, cols, out, f);
    return;
  }
  size_t n = ceil_div(rows, kSumBlock);
  float* level = scratch;
  for (size_t b = 0; b < n; ++b)
    sum_columns_block(b * kSumBlock, ts_min(kSumBlock, rows - b * kSumBlock), col, cols,
                      level + b * kColTile, f);
  while (n > 1) {
    const float* in = level;
    const auto held = [=](size_t i, size_t j, size_t m) TS_LAMBDA {
      return v_load_any(in + i * kColTile + j, m);
    };
    const size_t up = ceil_div(n, kSumBlock);
    float* next = up == 1 ? out : level + n * kColTile;
    for (size_t b = 0; b < up; ++b)
      sum_columns_block(b * kSumBlock, ts_min(kSumBlock, n - b * kSumBlock), 0, cols,
                        next + b * kColTile, held);
    level = next;
    n = up;
  }
}

}  // namespace tallystick::TS_ISA
