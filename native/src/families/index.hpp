// The scatter class and embedding look-up (NUMERICS 4, 9). Indices are checked by the caller.
#pragma once
#include <cstddef>
#include <cstdint>

#include "dispatch.hpp"

namespace tallystick {

struct IndexTable {
  // out[i] = weight[index[i]], `row` 32-bit words each; i in [begin, end). Bits unchanged.
  void (*embedding)(const uint32_t* weight, const int64_t* index, size_t row, uint32_t* out,
                    size_t begin, size_t end);
  void (*fill_zero)(float* out, size_t n);
  // out[i] = canonical x[i]; out may be x.
  void (*copy)(const float* x, float* out, size_t n);
  // out[index[i], c] += source[i, c] for c in [begin, end), i ascending; rows of `row` elements.
  // A source whose index is `skip` contributes nothing (skip < 0: none is skipped).
  void (*add_rows)(const float* source, const int64_t* index, size_t sources, size_t row,
                   int64_t skip, float* out, size_t begin, size_t end);
};

TS_DECLARE_TABLES(IndexTable, index)

}  // namespace tallystick
