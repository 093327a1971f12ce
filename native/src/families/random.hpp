// Random tensors (NUMERICS 8). Every element is a function of (seed, step, draw, index) alone.
#pragma once
#include <cstddef>
#include <cstdint>

#include "dispatch.hpp"

namespace tallystick {

struct RandomKey {
  uint64_t seed;
  uint32_t draw, step;
};

// Ranges [begin, end) of elements to out[0 ..); begin is a multiple of kRandomAlign or the range
// is the tail.
constexpr size_t kRandomAlign = 128;

struct RandomTable {
  void (*dropout_mask)(RandomKey key, uint64_t threshold, size_t begin, size_t end, uint8_t* out);
  void (*uniform)(RandomKey key, float low, float high, size_t begin, size_t end, float* out);
  void (*normal)(RandomKey key, float mean, float std, size_t begin, size_t end, float* out);
  // The first n elements of a row from `block` on, or of a part of it that begins with a block.
  void (*gumbel)(RandomKey key, uint64_t block, size_t n, float* out);
  void (*words)(RandomKey key, size_t begin, size_t end, uint32_t* out);
  // The bare generator, for known-answer tests.
  void (*block)(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);
};

TS_DECLARE_TABLES(RandomTable, random)

}  // namespace tallystick
