// What attention computes of one element, and which keys a query sees (NUMERICS 18).
#pragma once
#include "tallystick/elementary.hpp"
#include "tallystick/simd_f32.hpp"

namespace tallystick::TS_ISA {

// 18.2. Of no keys there is no last one.
struct KeysSeen {
  size_t lo, hi;
};
TS_INLINE KeysSeen keys_seen(bool causal, int64_t place, int64_t window, size_t keys) {
  const int64_t last = static_cast<int64_t>(keys) - 1;
  const int64_t hi = causal && place < last ? place : last;
  const int64_t lo = window != 0 && place >= window ? place - window + 1 : 0;
  return {static_cast<size_t>(lo), static_cast<size_t>(hi)};
}

// 18.3, after the product; `cap` counts only where `capped`.
TS_INLINE f32v score_of(f32v product, f32v scale, bool capped, f32v cap) {
  const f32v s = v_mul(product, scale);
  return capped ? v_mul(cr_tanh(v_div(s, cap)), cap) : s;
}
TS_INLINE f32v sloped(f32v s, f32v slope, f32v key) { return v_add(s, v_mul(slope, key)); }

}  // namespace tallystick::TS_ISA
