// Vectors of integers beside those of gemm_vec.hpp: what dequantising needs of them, per instruction
// set. A `bv` has a byte for each column of a panel. An `iv` has integers of 32 bits, as many as a
// `gv` has lanes; only non-negative ones are shifted.
#pragma once
#include "tallystick/gemm_vec.hpp"
#include "tallystick/gemm_widen.hpp"

namespace tallystick::TS_ISA {

static_assert(kPanelCols == 32, "a row of bytes is 32 columns");

#if defined(TS_ISA_AVX512) || defined(TS_ISA_AVX2)

using bv = __m256i;
TS_INLINE bv bv_load(const uint8_t* p) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
}
// Shifts each byte up by `up` bits (down if negative) and keeps the bits in `mask`. The mask must
// drop bits that come from a neighbouring byte.
TS_INLINE bv bv_part(bv x, int up, int mask) {
  if (up > 0) x = _mm256_slli_epi16(x, up);
  if (up < 0) x = _mm256_srli_epi16(x, -up);
  return _mm256_and_si256(x, _mm256_set1_epi8(static_cast<char>(mask)));
}
TS_INLINE bv bv_or(bv x, bv y) { return _mm256_or_si256(x, y); }
TS_INLINE bv bv_less(bv x, int y) {
  return _mm256_sub_epi8(x, _mm256_set1_epi8(static_cast<char>(y)));
}
#endif

#if defined(TS_ISA_AVX512)

using iv = __m512i;
TS_INLINE __m128i iv_lanes(const uint8_t* p) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
}
TS_INLINE iv iv_bytes(const uint8_t* p) { return _mm512_cvtepu8_epi32(iv_lanes(p)); }
// The integers of vector v, of bytes with a sign.
TS_INLINE iv iv_signed(const uint8_t* p, size_t v) {
  return _mm512_cvtepi8_epi32(iv_lanes(p + v * kLanes));
}
TS_INLINE iv iv_signed(bv x, size_t v) {
  return _mm512_cvtepi8_epi32(v == 0 ? _mm256_castsi256_si128(x) : _mm256_extracti128_si256(x, 1));
}
TS_INLINE iv iv_and(iv x, int mask) { return _mm512_and_si512(x, _mm512_set1_epi32(mask)); }
TS_INLINE iv iv_or(iv x, iv y) { return _mm512_or_si512(x, y); }
TS_INLINE iv iv_up(iv x, unsigned by) { return _mm512_slli_epi32(x, by); }
TS_INLINE iv iv_down(iv x, size_t by) {
  return _mm512_srlv_epi32(x, _mm512_set1_epi32(static_cast<int>(by)));
}
TS_INLINE gv iv_float(iv x) { return _mm512_cvtepi32_ps(x); }
// The binary16 numbers in the lower bits.
TS_INLINE gv iv_half(iv x) { return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(x)); }
TS_INLINE gv gv_mul(gv x, gv y) { return _mm512_mul_ps(x, y); }
TS_INLINE gv gv_negative(gv x) { return _mm512_xor_ps(x, _mm512_set1_ps(-0.0f)); }

#elif defined(TS_ISA_AVX2)

using iv = __m256i;
TS_INLINE __m128i iv_lanes(const uint8_t* p) {
  return _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
}
TS_INLINE iv iv_bytes(const uint8_t* p) { return _mm256_cvtepu8_epi32(iv_lanes(p)); }
TS_INLINE iv iv_signed(const uint8_t* p, size_t v) {
  return _mm256_cvtepi8_epi32(iv_lanes(p + v * kLanes));
}
TS_INLINE iv iv_signed(bv x, size_t v) {
  const __m128i half = v < 2 ? _mm256_castsi256_si128(x) : _mm256_extracti128_si256(x, 1);
  return _mm256_cvtepi8_epi32(v % 2 == 0 ? half : _mm_srli_si128(half, 8));
}
TS_INLINE iv iv_and(iv x, int mask) { return _mm256_and_si256(x, _mm256_set1_epi32(mask)); }
TS_INLINE iv iv_or(iv x, iv y) { return _mm256_or_si256(x, y); }
TS_INLINE iv iv_up(iv x, unsigned by) { return _mm256_slli_epi32(x, static_cast<int>(by)); }
TS_INLINE iv iv_down(iv x, size_t by) {
  return _mm256_srlv_epi32(x, _mm256_set1_epi32(static_cast<int>(by)));
}
TS_INLINE gv iv_float(iv x) { return _mm256_cvtepi32_ps(x); }
TS_INLINE gv iv_half(iv x) {  // as wide_f16: a machine with AVX2 need not have this conversion
  const iv size = iv_up(iv_and(x, 0x7fff), 13);
  const iv special = _mm256_cmpgt_epi32(size, _mm256_set1_epi32((0x7c00 << 13) - 1));
  const gv scaled = _mm256_mul_ps(_mm256_castsi256_ps(size), _mm256_set1_ps(0x1p112f));
  const iv sign = iv_up(iv_and(x, 0x8000), 16);
  const iv rest = iv_or(sign, _mm256_and_si256(special, _mm256_set1_epi32(0x7f800000)));
  return _mm256_or_ps(scaled, _mm256_castsi256_ps(rest));
}
TS_INLINE gv gv_mul(gv x, gv y) { return _mm256_mul_ps(x, y); }
TS_INLINE gv gv_negative(gv x) { return _mm256_xor_ps(x, _mm256_set1_ps(-0.0f)); }

#else  // lane by lane

struct bv {
  uint8_t x[kPanelCols];
};
template <class F>
TS_INLINE bv bv_each(F&& f) {
  bv r;
  for (size_t i = 0; i < kPanelCols; ++i) r.x[i] = static_cast<uint8_t>(f(i));
  return r;
}
TS_INLINE bv bv_load(const uint8_t* p) {
  return bv_each([&](size_t i) { return p[i]; });
}
TS_INLINE bv bv_part(const bv& x, int up, int mask) {
  return bv_each([&](size_t i) { return (up > 0 ? x.x[i] << up : x.x[i] >> -up) & mask; });
}
TS_INLINE bv bv_or(const bv& x, const bv& y) {
  return bv_each([&](size_t i) { return x.x[i] | y.x[i]; });
}
TS_INLINE bv bv_less(const bv& x, int y) {
  return bv_each([&](size_t i) { return x.x[i] - y; });
}

struct iv {
  int32_t x[kLanes];
};
template <class F>
TS_INLINE iv iv_each(F&& f) {
  iv r;
  for (int i = 0; i < kLanes; ++i) r.x[i] = f(i);
  return r;
}
template <class F>
TS_INLINE gv gv_each(F&& f) {
  float x[kLanes];
  for (int i = 0; i < kLanes; ++i) x[i] = f(i);
  return gv_load(x);
}
TS_INLINE iv iv_bytes(const uint8_t* p) {
  return iv_each([&](int i) { return p[i]; });
}
TS_INLINE iv iv_signed(const uint8_t* p, size_t v) {
  return iv_each([&](int i) { return static_cast<int8_t>(p[v * kLanes + static_cast<size_t>(i)]); });
}
TS_INLINE iv iv_signed(const bv& x, size_t v) { return iv_signed(x.x, v); }
TS_INLINE iv iv_and(const iv& x, int mask) {
  return iv_each([&](int i) { return x.x[i] & mask; });
}
TS_INLINE iv iv_or(const iv& x, const iv& y) {
  return iv_each([&](int i) { return x.x[i] | y.x[i]; });
}
TS_INLINE iv iv_up(const iv& x, unsigned by) {
  return iv_each([&](int i) { return x.x[i] << by; });
}
TS_INLINE iv iv_down(const iv& x, size_t by) {
  return iv_each([&](int i) { return x.x[i] >> by; });
}
TS_INLINE gv iv_float(const iv& x) {
  return gv_each([&](int i) { return static_cast<float>(x.x[i]); });
}
TS_INLINE gv iv_half(const iv& x) {
  return gv_each([&](int i) { return wide_f16(static_cast<uint16_t>(x.x[i])); });
}
TS_INLINE gv gv_mul(gv x, gv y) { return x * y; }
TS_INLINE gv gv_negative(gv x) { return -x; }

#endif

}  // namespace tallystick::TS_ISA
