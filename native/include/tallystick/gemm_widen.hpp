// Weights stored in 16 bits become binary32 (NUMERICS 10.7), a strip of columns at a time. Every value
// is exact. A NaN may keep another pattern here: a product makes that of its result canonical.
#pragma once
#include <cstring>

#include "families/gemm.hpp"
#include "tallystick/ts_base.hpp"

namespace tallystick::TS_ISA {

TS_INLINE float of_bits(uint32_t bits) {
  float x;
  std::memcpy(&x, &bits, sizeof x);
  return x;
}

TS_INLINE float wide_bf16(uint16_t bits) { return of_bits(static_cast<uint32_t>(bits) << 16); }

TS_INLINE float wide_f16(uint16_t bits) {
  const uint32_t size = static_cast<uint32_t>(bits & 0x7fff) << 13;
  // Under binary32's exponents the number is 2^112 times too small, subnormals included.
  const float scaled = of_bits(size) * 0x1p112f;
  uint32_t wide;
  std::memcpy(&wide, &scaled, sizeof wide);
  if (size >= (uint32_t(0x7c00) << 13)) wide |= 0x7f800000;  // an infinity or a NaN
  return of_bits(wide | static_cast<uint32_t>(bits & 0x8000) << 16);
}

// dst[i] = the number at src[i * step].
template <float (*kWide)(uint16_t)>
TS_INLINE void widen_line(const uint16_t* src, ptrdiff_t step, size_t n, float* dst) {
  if (step == 1) {
    for (size_t i = 0; i < n; ++i) dst[i] = kWide(src[i]);
  } else {
    for (size_t i = 0; i < n; ++i) dst[i] = kWide(src[static_cast<ptrdiff_t>(i) * step]);
  }
}

// `lines` lines of n numbers, one after the other; lines lie `between` elements apart in src.
static void widen(const StoredOperand& op, const uint16_t* src, size_t lines, ptrdiff_t between,
                  size_t n, ptrdiff_t step, float* dst) {
  for (size_t i = 0; i < lines; ++i, src += between, dst += n) {
    if (op.type == Stored::bf16) {
      widen_line<wide_bf16>(src, step, n, dst);
    } else {
      widen_line<wide_f16>(src, step, n, dst);
    }
  }
}

}  // namespace tallystick::TS_ISA
