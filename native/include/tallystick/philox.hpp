// Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", 2011)
// and its counter layout (NUMERICS 8.1): one block at a time, and kF32Lanes blocks in registers.
#pragma once
#include "tallystick/simd_f32.hpp"

namespace tallystick::TS_ISA {

constexpr uint32_t kPhiloxM0 = 0xD2511F53u, kPhiloxM1 = 0xCD9E8D57u;
constexpr uint32_t kPhiloxW0 = 0x9E3779B9u, kPhiloxW1 = 0xBB67AE85u;

struct PhiloxKey { uint32_t k0, k1; };
struct PhiloxDraw {  // common to all elements of one random tensor
  uint64_t seed;
  uint32_t draw, step;
};

TS_INLINE void philox4x32_10(const uint32_t counter[4], PhiloxKey key, uint32_t out[4]) {
  uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = static_cast<uint64_t>(kPhiloxM0) * c0;
    const uint64_t p1 = static_cast<uint64_t>(kPhiloxM1) * c2;
    c0 = static_cast<uint32_t>(p1 >> 32) ^ c1 ^ key.k0;
    c1 = static_cast<uint32_t>(p1);
    c2 = static_cast<uint32_t>(p0 >> 32) ^ c3 ^ key.k1;
    c3 = static_cast<uint32_t>(p0);
    key.k0 += kPhiloxW0;
    key.k1 += kPhiloxW1;
  }
  out[0] = c0; out[1] = c1; out[2] = c2; out[3] = c3;
}

// u32v: one 32-bit word per float lane. u_interleave writes word w of lane l to p[4*l + w].
#if defined(TS_ISA_AVX512)
struct u32v { __m512i v; };
TS_INLINE u32v u_set1(uint32_t x) { return {_mm512_set1_epi32(static_cast<int>(x))}; }
TS_INLINE u32v u_load(const uint32_t* p) { return {_mm512_loadu_si512(p)}; }
TS_INLINE u32v u_xor(u32v a, u32v b) { return {_mm512_xor_si512(a.v, b.v)}; }
TS_INLINE void u_mul(u32v a, uint32_t m, u32v* hi, u32v* lo) {
  const __m512i mm = _mm512_set1_epi32(static_cast<int>(m));
  const __m512i even = _mm512_mul_epu32(a.v, mm);
  const __m512i odd = _mm512_mul_epu32(_mm512_srli_epi64(a.v, 32), mm);
  *lo = {_mm512_mask_blend_epi32(0xaaaa, even, _mm512_slli_epi64(odd, 32))};
  *hi = {_mm512_mask_blend_epi32(0xaaaa, _mm512_srli_epi64(even, 32), odd)};
}
TS_INLINE void u_interleave(uint32_t* p, u32v a, u32v b, u32v c, u32v d) {
  const __m512i ab0 = _mm512_unpacklo_epi32(a.v, b.v), ab1 = _mm512_unpackhi_epi32(a.v, b.v);
  const __m512i cd0 = _mm512_unpacklo_epi32(c.v, d.v), cd1 = _mm512_unpackhi_epi32(c.v, d.v);
  const __m512i r[4] = {_mm512_unpacklo_epi64(ab0, cd0), _mm512_unpackhi_epi64(ab0, cd0),
                        _mm512_unpacklo_epi64(ab1, cd1), _mm512_unpackhi_epi64(ab1, cd1)};
  for (int j = 0; j < 4; ++j) {  // 128-bit part k of r[j] is lane 4k + j
    __m128i* to = reinterpret_cast<__m128i*>(p);
    _mm_storeu_si128(to + j, _mm512_extracti32x4_epi32(r[j], 0));
    _mm_storeu_si128(to + 4 + j, _mm512_extracti32x4_epi32(r[j], 1));
    _mm_storeu_si128(to + 8 + j, _mm512_extracti32x4_epi32(r[j], 2));
    _mm_storeu_si128(to + 12 + j, _mm512_extracti32x4_epi32(r[j], 3));
  }
}
// The top 24 bits of each word as a float, exactly.
TS_INLINE f32v u_top24(u32v a) { return _mm512_cvtepi32_ps(_mm512_srli_epi32(a.v, 8)); }
// The two halves of each word.
TS_INLINE f32v u_top16(u32v a) { return _mm512_cvtepi32_ps(_mm512_srli_epi32(a.v, 16)); }
TS_INLINE f32v u_low16(u32v a) {
  return _mm512_cvtepi32_ps(_mm512_and_si512(a.v, _mm512_set1_epi32(0xffff)));
}
TS_INLINE f32m u_ge(u32v a, u32v b) { return {_mm512_cmpge_epu32_mask(a.v, b.v)}; }
#elif defined(TS_ISA_AVX2)
struct u32v { __m256i v; };
TS_INLINE u32v u_set1(uint32_t x) { return {_mm256_set1_epi32(static_cast<int>(x))}; }
TS_INLINE u32v u_load(const uint32_t* p) {
  return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))};
}
TS_INLINE u32v u_xor(u32v a, u32v b) { return {_mm256_xor_si256(a.v, b.v)}; }
TS_INLINE void u_mul(u32v a, uint32_t m, u32v* hi, u32v* lo) {
  const __m256i mm = _mm256_set1_epi32(static_cast<int>(m));
  const __m256i even = _mm256_mul_epu32(a.v, mm);
  const __m256i odd = _mm256_mul_epu32(_mm256_srli_epi64(a.v, 32), mm);
  *lo = {_mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), 0xaa)};
  *hi = {_mm256_blend_epi32(_mm256_srli_epi64(even, 32), odd, 0xaa)};
}
TS_INLINE void u_interleave(uint32_t* p, u32v a, u32v b, u32v c, u32v d) {
  const __m256i ab0 = _mm256_unpacklo_epi32(a.v, b.v), ab1 = _mm256_unpackhi_epi32(a.v, b.v);
  const __m256i cd0 = _mm256_unpacklo_epi32(c.v, d.v), cd1 = _mm256_unpackhi_epi32(c.v, d.v);
  const __m256i r[4] = {_mm256_unpacklo_epi64(ab0, cd0), _mm256_unpackhi_epi64(ab0, cd0),
                        _mm256_unpacklo_epi64(ab1, cd1), _mm256_unpackhi_epi64(ab1, cd1)};
  for (int j = 0; j < 4; ++j) {  // 128-bit part k of r[j] is lane 4k + j
    __m128i* to = reinterpret_cast<__m128i*>(p);
    _mm_storeu_si128(to + j, _mm256_castsi256_si128(r[j]));
    _mm_storeu_si128(to + 4 + j, _mm256_extracti128_si256(r[j], 1));
  }
}
TS_INLINE f32v u_top24(u32v a) { return _mm256_cvtepi32_ps(_mm256_srli_epi32(a.v, 8)); }
TS_INLINE f32v u_top16(u32v a) { return _mm256_cvtepi32_ps(_mm256_srli_epi32(a.v, 16)); }
TS_INLINE f32v u_low16(u32v a) {
  return _mm256_cvtepi32_ps(_mm256_and_si256(a.v, _mm256_set1_epi32(0xffff)));
}
TS_INLINE f32m u_ge(u32v a, u32v b) {
  return {_mm256_castsi256_ps(_mm256_cmpeq_epi32(_mm256_max_epu32(a.v, b.v), a.v))};
}
#elif defined(TS_ISA_NEON)
struct u32v { uint32x4_t v; };
TS_INLINE u32v u_set1(uint32_t x) { return {vdupq_n_u32(x)}; }
TS_INLINE u32v u_load(const uint32_t* p) { return {vld1q_u32(p)}; }
TS_INLINE u32v u_xor(u32v a, u32v b) { return {veorq_u32(a.v, b.v)}; }
TS_INLINE void u_mul(u32v a, uint32_t m, u32v* hi, u32v* lo) {
  const uint32x4_t p0 = vreinterpretq_u32_u64(vmull_n_u32(vget_low_u32(a.v), m));
  const uint32x4_t p1 = vreinterpretq_u32_u64(vmull_n_u32(vget_high_u32(a.v), m));
  *lo = {vuzp1q_u32(p0, p1)};
  *hi = {vuzp2q_u32(p0, p1)};
}
TS_INLINE void u_interleave(uint32_t* p, u32v a, u32v b, u32v c, u32v d) {
  const uint32x4x4_t r = {{a.v, b.v, c.v, d.v}};
  vst4q_u32(p, r);
}
TS_INLINE f32v u_top24(u32v a) { return vcvtq_f32_u32(vshrq_n_u32(a.v, 8)); }
TS_INLINE f32v u_top16(u32v a) { return vcvtq_f32_u32(vshrq_n_u32(a.v, 16)); }
TS_INLINE f32v u_low16(u32v a) { return vcvtq_f32_u32(vandq_u32(a.v, vdupq_n_u32(0xffff))); }
TS_INLINE f32m u_ge(u32v a, u32v b) { return {vcgeq_u32(a.v, b.v)}; }
#else
struct u32v { uint32_t v; };
TS_INLINE u32v u_set1(uint32_t x) { return {x}; }
TS_INLINE u32v u_load(const uint32_t* p) { return {*p}; }
TS_INLINE u32v u_xor(u32v a, u32v b) { return {a.v ^ b.v}; }
TS_INLINE void u_mul(u32v a, uint32_t m, u32v* hi, u32v* lo) {
  const uint64_t p = static_cast<uint64_t>(a.v) * m;
  *lo = {static_cast<uint32_t>(p)};
  *hi = {static_cast<uint32_t>(p >> 32)};
}
TS_INLINE void u_interleave(uint32_t* p, u32v a, u32v b, u32v c, u32v d) {
  p[0] = a.v; p[1] = b.v; p[2] = c.v; p[3] = d.v;
}
TS_INLINE f32v u_top24(u32v a) { return static_cast<float>(a.v >> 8); }
TS_INLINE f32v u_top16(u32v a) { return static_cast<float>(a.v >> 16); }
TS_INLINE f32v u_low16(u32v a) { return static_cast<float>(a.v & 0xffff); }
TS_INLINE f32m u_ge(u32v a, u32v b) { return a.v >= b.v; }
#endif

// Words of kPhiloxWords / 4 consecutive blocks from `first`, in element order. The loop computes
// two groups of lanes at once, because the ten rounds of one are a chain of dependent
// multiplications.
constexpr size_t kPhiloxGroups = 2;
constexpr size_t kPhiloxWords = 4 * kPhiloxGroups * kF32Lanes;
TS_INLINE void philox_words(const PhiloxDraw& d, uint64_t first, uint32_t* out) {
  u32v c[kPhiloxGroups][4];
  for (size_t g = 0; g < kPhiloxGroups; ++g) {
    uint32_t low[kF32Lanes], high[kF32Lanes];
    for (size_t l = 0; l < kF32Lanes; ++l) {
      const uint64_t block = first + g * kF32Lanes + l;
      low[l] = static_cast<uint32_t>(block);
      high[l] = static_cast<uint32_t>(block >> 32);
    }
    c[g][0] = u_load(low);
    c[g][1] = u_load(high);
    c[g][2] = u_set1(d.draw);
    c[g][3] = u_set1(d.step);
  }
  uint32_t k0 = static_cast<uint32_t>(d.seed), k1 = static_cast<uint32_t>(d.seed >> 32);
  for (int round = 0; round < 10; ++round) {
    for (size_t g = 0; g < kPhiloxGroups; ++g) {
      u32v h0, l0, h1, l1;
      u_mul(c[g][0], kPhiloxM0, &h0, &l0);
      u_mul(c[g][2], kPhiloxM1, &h1, &l1);
      c[g][0] = u_xor(u_xor(h1, c[g][1]), u_set1(k0));
      c[g][1] = l1;
      c[g][2] = u_xor(u_xor(h0, c[g][3]), u_set1(k1));
      c[g][3] = l0;
    }
    k0 += kPhiloxW0;
    k1 += kPhiloxW1;
  }
  for (size_t g = 0; g < kPhiloxGroups; ++g)
    u_interleave(out + g * 4 * kF32Lanes, c[g][0], c[g][1], c[g][2], c[g][3]);
}

}  // namespace tallystick::TS_ISA
