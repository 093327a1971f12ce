#include "sha256_lanes.hpp"

#include "dispatch.hpp"
#include "tallystick/sha256_numbers.hpp"

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#define TS_SHA_LANES 1
#include <immintrin.h>
#endif

namespace tallystick {

#if defined(TS_SHA_LANES)
namespace {

#define TS_LANES_TARGET __attribute__((target("avx512f,avx512bw")))
#define TS_LANES_INLINE __attribute__((target("avx512f,avx512bw"), always_inline)) inline

alignas(64) constexpr uint32_t kRound[64] = {TS_SHA256_ROUNDS};

// Words of 16 streams, one stream a row, become 16 words, one word a row.
TS_LANES_INLINE void transpose(__m512i r[16]) {
  __m512i t[16];
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
    t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
  }
  for (int i = 0; i < 16; i += 4) {
    r[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
    r[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
    r[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
    r[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
  }
  for (int i = 0; i < 4; ++i) {
    t[i] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0x88);
    t[i + 4] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0xdd);
    t[i + 8] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0x88);
    t[i + 12] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0xdd);
  }
  for (int i = 0; i < 4; ++i) {
    r[i] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0x88);
    r[i + 8] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0xdd);
    r[i + 4] = _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0x88);
    r[i + 12] = _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0xdd);
  }
}

TS_LANES_INLINE __m512i sum(__m512i x, __m512i y) { return _mm512_add_epi32(x, y); }
TS_LANES_INLINE __m512i xor3(__m512i x, __m512i y, __m512i z) {
  return _mm512_ternarylogic_epi32(x, y, z, 0x96);
}

TS_LANES_INLINE void round_lanes(__m512i a, __m512i b, __m512i c, __m512i& d, __m512i e, __m512i f,
                                 __m512i g, __m512i& h, __m512i wk) {
  const __m512i s1 = xor3(_mm512_ror_epi32(e, 6), _mm512_ror_epi32(e, 11), _mm512_ror_epi32(e, 25));
  const __m512i choice = _mm512_ternarylogic_epi32(e, f, g, 0xca);
  const __m512i t1 = sum(sum(h, wk), sum(s1, choice));
  const __m512i s0 = xor3(_mm512_ror_epi32(a, 2), _mm512_ror_epi32(a, 13), _mm512_ror_epi32(a, 22));
  const __m512i majority = _mm512_ternarylogic_epi32(a, b, c, 0xe8);
  d = sum(d, t1);
  h = sum(t1, sum(s0, majority));
}

TS_LANES_INLINE __m512i expanded(__m512i w16, __m512i w15, __m512i w7, __m512i w2) {
  const __m512i s0 =
      xor3(_mm512_ror_epi32(w15, 7), _mm512_ror_epi32(w15, 18), _mm512_srli_epi32(w15, 3));
  const __m512i s1 =
      xor3(_mm512_ror_epi32(w2, 17), _mm512_ror_epi32(w2, 19), _mm512_srli_epi32(w2, 10));
  return sum(sum(w16, s0), sum(w7, s1));
}

}  // namespace

bool has_sha_lanes() {
  return x86_features().avx512f && x86_features().avx512bw;
}

TS_LANES_TARGET void compress_lanes(ShaLanes& state, const uint8_t* const p[kShaLanes],
                                    size_t blocks) {
  const __m512i swap = _mm512_broadcast_i32x4(
      _mm_set_epi64x(0x0c0d0e0f08090a0bLL, 0x0405060700010203LL));
  __m512i s[8];
  for (int i = 0; i < 8; ++i) s[i] = _mm512_load_si512(state.words[i]);
  for (size_t block = 0; block < blocks; ++block) {
    __m512i w[16];
    for (size_t l = 0; l < kShaLanes; ++l)
      w[l] = _mm512_shuffle_epi8(_mm512_loadu_si512(p[l] + 64 * block), swap);
    transpose(w);
    __m512i a = s[0], b = s[1], c = s[2], d = s[3], e = s[4], f = s[5], g = s[6], h = s[7];
    for (int at = 0; at < 64; at += 16) {
#define TS_WK(i) sum(w[i], _mm512_set1_epi32(static_cast<int>(kRound[at + (i)])))
#define TS_EIGHT(i)                              \
  round_lanes(a, b, c, d, e, f, g, h, TS_WK(i));     \
  round_lanes(h, a, b, c, d, e, f, g, TS_WK(i + 1)); \
  round_lanes(g, h, a, b, c, d, e, f, TS_WK(i + 2)); \
  round_lanes(f, g, h, a, b, c, d, e, TS_WK(i + 3)); \
  round_lanes(e, f, g, h, a, b, c, d, TS_WK(i + 4)); \
  round_lanes(d, e, f, g, h, a, b, c, TS_WK(i + 5)); \
  round_lanes(c, d, e, f, g, h, a, b, TS_WK(i + 6)); \
  round_lanes(b, c, d, e, f, g, h, a, TS_WK(i + 7));
      TS_EIGHT(0)
      TS_EIGHT(8)
#undef TS_EIGHT
#undef TS_WK
      if (at == 48) break;
#pragma GCC unroll 16
      for (int i = 0; i < 16; ++i)
        w[i] = expanded(w[i], w[(i + 1) & 15], w[(i + 9) & 15], w[(i + 14) & 15]);
    }
    const __m512i found[8] = {a, b, c, d, e, f, g, h};
    for (int i = 0; i < 8; ++i) s[i] = sum(s[i], found[i]);
  }
  for (int i = 0; i < 8; ++i) _mm512_store_si512(state.words[i], s[i]);
}

#else

bool has_sha_lanes() { return false; }
void compress_lanes(ShaLanes&, const uint8_t* const[kShaLanes], size_t) {}

#endif

}  // namespace tallystick
