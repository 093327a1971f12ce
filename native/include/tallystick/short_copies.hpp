// Short copies and fills without a call.
#pragma once
#include "tallystick/gemm_vec.hpp"

namespace tallystick::TS_ISA {

// Whole vectors, then halves of the rest.
TS_INLINE void copy_floats(float* dst, const float* src, size_t n) {
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) gv_store(dst + i, gv_load(src + i));
  if (n & (kLanes - 1) & 8) { std::memcpy(dst + i, src + i, 32); i += 8; }
  if (n & (kLanes - 1) & 4) { std::memcpy(dst + i, src + i, 16); i += 4; }
  if (n & (kLanes - 1) & 2) { std::memcpy(dst + i, src + i, 8); i += 2; }
  if (n & (kLanes - 1) & 1) dst[i] = src[i];
}

TS_INLINE void zero_floats(float* dst, size_t n) {
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) gv_store(dst + i, gv_zero());
  for (; i < n; ++i) dst[i] = 0.0f;
}

}  // namespace tallystick::TS_ISA
