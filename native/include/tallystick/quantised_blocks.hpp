// Blocks of quantised weights become binary32 (NUMERICS 19). Each product and each sum is rounded by
// itself. A NaN may keep another pattern here: who stores the numbers makes it canonical.
#pragma once
#include "families/quantised.hpp"
#include "tallystick/gemm_widen.hpp"
#include "tallystick/ts_base.hpp"

namespace tallystick::TS_ISA {

TS_INLINE float half_at(const uint8_t* p) {
  return wide_f16(static_cast<uint16_t>(p[0] | p[1] << 8));
}

// --- 32 numbers (19.3) -----------------------------------------------------------------------------
TS_INLINE void block_q8_0(const uint8_t* __restrict__ b, float* __restrict__ out) {
  const float d = half_at(b);
  for (int j = 0; j < 32; ++j) out[j] = d * static_cast<float>(static_cast<int8_t>(b[2 + j]));
}

// gcc writes out a loop of 16 before it looks for vectors, and then finds none.
#define TS_LOOP _Pragma("GCC unroll 1")

// The numbers d·(q + shift) + m of the lower halves of 16 bytes, then of the higher ones.
template <int kShift, bool kAdds>
TS_INLINE void of_four(const uint8_t* __restrict__ q, float d, float m, float* __restrict__ out) {
  TS_LOOP for (int j = 0; j < 16; ++j) {
    const float x = d * static_cast<float>((q[j] & 15) + kShift);
    out[j] = kAdds ? x + m : x;
  }
  TS_LOOP for (int j = 0; j < 16; ++j) {
    const float x = d * static_cast<float>((q[j] >> 4) + kShift);
    out[j + 16] = kAdds ? x + m : x;
  }
}

// Bit i of `bits` as byte i, which is 16 or 0.
TS_INLINE uint64_t fifth_bits(uint8_t bits) {
  const uint64_t one_each = (bits * 0x0101010101010101ull) & 0x8040201008040201ull;
  return ((one_each + 0x00406070787c7e7full) >> 3) & 0x1010101010101010ull;
}

// The same with a fifth bit of each number, from four bytes. The machines of these kernels have lower
// bytes first, so byte i of a word is the number's own.
template <int kShift, bool kAdds>
TS_INLINE void of_five(const uint8_t* __restrict__ high, const uint8_t* __restrict__ q, float d,
                       float m, float* __restrict__ out) {
  uint8_t fifth[32];
  for (int k = 0; k < 4; ++k) {
    const uint64_t eight = fifth_bits(high[k]);
    std::memcpy(fifth + 8 * k, &eight, sizeof eight);
  }
  TS_LOOP for (int j = 0; j < 16; ++j) {
    const float x = d * static_cast<float>(((q[j] & 15) | fifth[j]) + kShift);
    out[j] = kAdds ? x + m : x;
  }
  TS_LOOP for (int j = 0; j < 16; ++j) {
    const float x = d * static_cast<float>(((q[j] >> 4) | fifth[j + 16]) + kShift);
    out[j + 16] = kAdds ? x + m : x;
  }
}

TS_INLINE void block_q4_0(const uint8_t* __restrict__ b, float* __restrict__ out) {
  of_four<-8, false>(b + 2, half_at(b), 0.0f, out);
}

TS_INLINE void block_q4_1(const uint8_t* __restrict__ b, float* __restrict__ out) {
  of_four<0, true>(b + 4, half_at(b), half_at(b + 2), out);
}

TS_INLINE void block_q5_0(const uint8_t* __restrict__ b, float* __restrict__ out) {
  of_five<-16, false>(b + 2, b + 6, half_at(b), 0.0f, out);
}

TS_INLINE void block_q5_1(const uint8_t* __restrict__ b, float* __restrict__ out) {
  of_five<0, true>(b + 4, b + 8, half_at(b), half_at(b + 2), out);
}

// --- 256 numbers (19.4) ----------------------------------------------------------------------------
// The scale and the minimum of the numbers 32 s to 32 s + 31.
struct ScaleAndLeast {
  float scale, least;
};

TS_INLINE ScaleAndLeast scale_of(const uint8_t* b, int s) {
  const float d = half_at(b), least = half_at(b + 2);
  const uint8_t* p = b + 4;
  int scale, m;
  if (s < 4) {
    scale = p[s] & 63;
    m = p[s + 4] & 63;
  } else {
    scale = (p[s + 4] & 15) | (p[s - 4] >> 6) << 4;
    m = (p[s + 4] >> 4) | (p[s] >> 6) << 4;
  }
  return {d * static_cast<float>(scale), least * static_cast<float>(m)};
}

TS_INLINE void block_q4_k(const uint8_t* __restrict__ b, float* __restrict__ out) {
  for (int g = 0; g < 4; ++g, out += 64) {
    const uint8_t* q = b + 16 + 32 * g;
    const ScaleAndLeast lo = scale_of(b, 2 * g), hi = scale_of(b, 2 * g + 1);
    for (int j = 0; j < 32; ++j) out[j] = lo.scale * static_cast<float>(q[j] & 15) - lo.least;
    for (int j = 0; j < 32; ++j) out[j + 32] = hi.scale * static_cast<float>(q[j] >> 4) - hi.least;
  }
}

TS_INLINE void block_q5_k(const uint8_t* __restrict__ b, float* __restrict__ out) {
  const uint8_t* high = b + 16;
  for (int g = 0; g < 4; ++g, out += 64) {
    const uint8_t* q = b + 48 + 32 * g;
    const ScaleAndLeast lo = scale_of(b, 2 * g), hi = scale_of(b, 2 * g + 1);
    for (int j = 0; j < 32; ++j) {
      const int x = (q[j] & 15) | (high[j] >> (2 * g) & 1) << 4;
      out[j] = lo.scale * static_cast<float>(x) - lo.least;
    }
    for (int j = 0; j < 32; ++j) {
      const int x = (q[j] >> 4) | (high[j] >> (2 * g + 1) & 1) << 4;
      out[j + 32] = hi.scale * static_cast<float>(x) - hi.least;
    }
  }
}

TS_INLINE void block_q6_k(const uint8_t* __restrict__ b, float* __restrict__ out) {
  const float d = half_at(b + 208);
  for (int half = 0; half < 2; ++half) {
    const uint8_t *low = b + 64 * half, *high = b + 128 + 32 * half;
    for (int r = 0; r < 4; ++r, out += 32) {  // 32 numbers, with two scales
      const uint8_t* q = low + 32 * (r & 1);
      const uint8_t* scales = b + 192 + 8 * half + 2 * r;
      for (int part = 0; part < 2; ++part) {
        const float scale = d * static_cast<float>(static_cast<int8_t>(scales[part]));
        TS_LOOP for (int j = 16 * part; j < 16 * part + 16; ++j) {
          const int x = (q[j] >> (r & 2 ? 4 : 0) & 15) | (high[j] >> (2 * r) & 3) << 4;
          out[j] = scale * static_cast<float>(x - 32);
        }
      }
    }
  }
}

#undef TS_LOOP

template <void (*kBlock)(const uint8_t* __restrict__, float* __restrict__)>
TS_INLINE void blocks_of(BlockShape shape, const uint8_t* src, size_t blocks, float* out) {
  for (size_t i = 0; i < blocks; ++i) kBlock(src + i * shape.size, out + i * shape.elements);
}

// The numbers of `blocks` blocks that lie one after the other.
static void dequantize_blocks(BlockFormat format, const uint8_t* src, size_t blocks, float* out) {
  const BlockShape shape = block_shape(format);
  switch (format) {
    case BlockFormat::q4_0: return blocks_of<block_q4_0>(shape, src, blocks, out);
    case BlockFormat::q4_1: return blocks_of<block_q4_1>(shape, src, blocks, out);
    case BlockFormat::q5_0: return blocks_of<block_q5_0>(shape, src, blocks, out);
    case BlockFormat::q5_1: return blocks_of<block_q5_1>(shape, src, blocks, out);
    case BlockFormat::q8_0: return blocks_of<block_q8_0>(shape, src, blocks, out);
    case BlockFormat::q4_k: return blocks_of<block_q4_k>(shape, src, blocks, out);
    case BlockFormat::q5_k: return blocks_of<block_q5_k>(shape, src, blocks, out);
    case BlockFormat::q6_k: return blocks_of<block_q6_k>(shape, src, blocks, out);
  }
}

}  // namespace tallystick::TS_ISA
