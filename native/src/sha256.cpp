#include "sha256.hpp"

#include <atomic>
#include <cstdlib>
#include <cstring>

#include "sha256_lanes.hpp"
#include "tallystick/sha256_numbers.hpp"
#include "thread_pool.hpp"

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#define TS_SHA_X86 1
#include <cpuid.h>
#include <immintrin.h>
#elif defined(__aarch64__) && defined(__AARCH64EL__) &&                          \
    (defined(__ARM_FEATURE_SHA2) || (defined(__clang__) && __clang_major__ >= 17) || \
     (defined(__GNUC__) && !defined(__clang__)))
// Older clang declares these intrinsics only where the whole file is compiled for them.
#define TS_SHA_ARM 1
#include <arm_neon.h>
#if defined(__linux__)
#include <sys/auxv.h>
#endif
#endif

namespace tallystick {
namespace {

constexpr size_t kBlock = 64;
// Leaves per task: a power of two, so that each task's root is a node of the whole tree.
constexpr size_t kTaskLeaves = 512;

alignas(64) constexpr uint32_t kRound[64] = {TS_SHA256_ROUNDS};
constexpr uint32_t kInit[8] = {TS_SHA256_START};

// ---- compression functions: one stream, and two independent streams of equal length ----------

inline uint32_t rotr(uint32_t x, int n) { return (x >> n) | (x << (32 - n)); }

inline uint32_t load_be(const uint8_t* p) {
  return (uint32_t{p[0]} << 24) | (uint32_t{p[1]} << 16) | (uint32_t{p[2]} << 8) | uint32_t{p[3]};
}

void compress_portable(uint32_t* state, const uint8_t* p, size_t blocks) {
  for (; blocks != 0; --blocks, p += kBlock) {
    uint32_t w[64];
    for (int t = 0; t < 16; ++t) w[t] = load_be(p + 4 * t);
    for (int t = 16; t < 64; ++t) {
      const uint32_t s0 = rotr(w[t - 15], 7) ^ rotr(w[t - 15], 18) ^ (w[t - 15] >> 3);
      const uint32_t s1 = rotr(w[t - 2], 17) ^ rotr(w[t - 2], 19) ^ (w[t - 2] >> 10);
      w[t] = w[t - 16] + s0 + w[t - 7] + s1;
    }
    uint32_t a = state[0], b = state[1], c = state[2], d = state[3];
    uint32_t e = state[4], f = state[5], g = state[6], h = state[7];
    for (int t = 0; t < 64; ++t) {
      const uint32_t t1 = h + (rotr(e, 6) ^ rotr(e, 11) ^ rotr(e, 25)) + ((e & f) ^ (~e & g)) +
                          kRound[t] + w[t];
      const uint32_t t2 =
          (rotr(a, 2) ^ rotr(a, 13) ^ rotr(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
      h = g, g = f, f = e, e = d + t1, d = c, c = b, b = a, a = t1 + t2;
    }
    state[0] += a, state[1] += b, state[2] += c, state[3] += d;
    state[4] += e, state[5] += f, state[6] += g, state[7] += h;
  }
}

void compress2_portable(uint32_t* s0, const uint8_t* p0, uint32_t* s1, const uint8_t* p1,
                        size_t blocks) {
  compress_portable(s0, p0, blocks);
  compress_portable(s1, p1, blocks);
}

#if defined(TS_SHA_X86)

#define TS_SHA_TARGET __attribute__((target("sha,sse4.1,ssse3")))
#define TS_SHA_INLINE __attribute__((target("sha,sse4.1,ssse3"), always_inline)) inline

// A stream: the hash so far, and sixteen words of the message's schedule.
struct ShaState { __m128i abef, cdgh; };
struct ShaStream {
  ShaState state;
  __m128i m0, m1, m2, m3;
};

TS_SHA_INLINE void sha_open(ShaState& s, const uint32_t* state) {
  __m128i lo = _mm_loadu_si128(reinterpret_cast<const __m128i*>(state));
  __m128i hi = _mm_loadu_si128(reinterpret_cast<const __m128i*>(state + 4));
  lo = _mm_shuffle_epi32(lo, 0xB1);
  hi = _mm_shuffle_epi32(hi, 0x1B);
  s.abef = _mm_alignr_epi8(lo, hi, 8);
  s.cdgh = _mm_blend_epi16(hi, lo, 0xF0);
}

TS_SHA_INLINE void sha_close(const ShaState& s, uint32_t* state) {
  __m128i lo = _mm_shuffle_epi32(s.abef, 0x1B);
  __m128i hi = _mm_shuffle_epi32(s.cdgh, 0xB1);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(state), _mm_blend_epi16(lo, hi, 0xF0));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(state + 4), _mm_alignr_epi8(hi, lo, 8));
}

TS_SHA_INLINE void sha_add(ShaState& s, const ShaState& before) {
  s.abef = _mm_add_epi32(s.abef, before.abef);
  s.cdgh = _mm_add_epi32(s.cdgh, before.cdgh);
}

TS_SHA_INLINE void sha_load(ShaStream& s, const uint8_t* p) {
  const __m128i swap = _mm_set_epi64x(0x0c0d0e0f08090a0bLL, 0x0405060700010203LL);
  const __m128i* q = reinterpret_cast<const __m128i*>(p);
  s.m0 = _mm_shuffle_epi8(_mm_loadu_si128(q), swap);
  s.m1 = _mm_shuffle_epi8(_mm_loadu_si128(q + 1), swap);
  s.m2 = _mm_shuffle_epi8(_mm_loadu_si128(q + 2), swap);
  s.m3 = _mm_shuffle_epi8(_mm_loadu_si128(q + 3), swap);
}

// Four rounds with the four words in m0, then the schedule moves on by four words.
TS_SHA_INLINE void sha_rounds4(ShaStream& s, int group, bool expand) {
  const __m128i k = _mm_load_si128(reinterpret_cast<const __m128i*>(kRound + 4 * group));
  const __m128i wk = _mm_add_epi32(s.m0, k);
  __m128i &abef = s.state.abef, &cdgh = s.state.cdgh;
  cdgh = _mm_sha256rnds2_epu32(cdgh, abef, wk);
  abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(wk, 0x0E));
  __m128i next = s.m0;
  if (expand) {
    next = _mm_add_epi32(_mm_sha256msg1_epu32(s.m0, s.m1), _mm_alignr_epi8(s.m3, s.m2, 4));
    next = _mm_sha256msg2_epu32(next, s.m3);
  }
  s.m0 = s.m1, s.m1 = s.m2, s.m2 = s.m3, s.m3 = next;
}

bool cpu_has_sha() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid(1, &a, &b, &c, &d) == 0) return false;
  const bool ssse3 = (c >> 9) & 1u, sse41 = (c >> 19) & 1u;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) return false;
  return ssse3 && sse41 && ((b >> 29) & 1u);
}

#elif defined(TS_SHA_ARM)

#if defined(__clang__)
#define TS_SHA_TARGET __attribute__((target("sha2")))
#define TS_SHA_INLINE __attribute__((target("sha2"), always_inline)) inline
#else
#define TS_SHA_TARGET __attribute__((target("+crypto")))
#define TS_SHA_INLINE __attribute__((target("+crypto"), always_inline)) inline
#endif

struct ShaState { uint32x4_t abcd, efgh; };
struct ShaStream {
  ShaState state;
  uint32x4_t m0, m1, m2, m3;
};

TS_SHA_INLINE void sha_open(ShaState& s, const uint32_t* state) {
  s.abcd = vld1q_u32(state);
  s.efgh = vld1q_u32(state + 4);
}

TS_SHA_INLINE void sha_close(const ShaState& s, uint32_t* state) {
  vst1q_u32(state, s.abcd);
  vst1q_u32(state + 4, s.efgh);
}

TS_SHA_INLINE void sha_add(ShaState& s, const ShaState& before) {
  s.abcd = vaddq_u32(s.abcd, before.abcd);
  s.efgh = vaddq_u32(s.efgh, before.efgh);
}

TS_SHA_INLINE void sha_load(ShaStream& s, const uint8_t* p) {
  s.m0 = vreinterpretq_u32_u8(vrev32q_u8(vld1q_u8(p)));
  s.m1 = vreinterpretq_u32_u8(vrev32q_u8(vld1q_u8(p + 16)));
  s.m2 = vreinterpretq_u32_u8(vrev32q_u8(vld1q_u8(p + 32)));
  s.m3 = vreinterpretq_u32_u8(vrev32q_u8(vld1q_u8(p + 48)));
}

TS_SHA_INLINE void sha_rounds4(ShaStream& s, int group, bool expand) {
  const uint32x4_t wk = vaddq_u32(s.m0, vld1q_u32(kRound + 4 * group));
  const uint32x4_t abcd = s.state.abcd;
  s.state.abcd = vsha256hq_u32(s.state.abcd, s.state.efgh, wk);
  s.state.efgh = vsha256h2q_u32(s.state.efgh, abcd, wk);
  uint32x4_t next = s.m0;
  if (expand) next = vsha256su1q_u32(vsha256su0q_u32(s.m0, s.m1), s.m2, s.m3);
  s.m0 = s.m1, s.m1 = s.m2, s.m2 = s.m3, s.m3 = next;
}

bool cpu_has_sha() {
#if defined(__APPLE__)
  return true;  // every arm64 Apple processor has the SHA-2 instructions
#elif defined(__linux__)
  constexpr unsigned long kHwcapSha2 = 1ul << 6;
  return (getauxval(AT_HWCAP) & kHwcapSha2) != 0;
#else
  return false;
#endif
}

#endif

#if defined(TS_SHA_TARGET)

TS_SHA_TARGET void compress_native(uint32_t* state, const uint8_t* p, size_t blocks) {
  ShaStream s;
  sha_open(s.state, state);
  for (; blocks != 0; --blocks, p += kBlock) {
    const ShaState before = s.state;
    sha_load(s, p);
#pragma GCC unroll 16
    for (int g = 0; g < 16; ++g) sha_rounds4(s, g, g < 12);
    sha_add(s.state, before);
  }
  sha_close(s.state, state);
}

// The rounds are bound by latency, so two chains side by side nearly double the throughput.
TS_SHA_TARGET void compress2_native(uint32_t* s0, const uint8_t* p0, uint32_t* s1,
                                    const uint8_t* p1, size_t blocks) {
  ShaStream a, b;
  sha_open(a.state, s0);
  sha_open(b.state, s1);
  for (; blocks != 0; --blocks, p0 += kBlock, p1 += kBlock) {
    const ShaState before_a = a.state, before_b = b.state;
    sha_load(a, p0);
    sha_load(b, p1);
#pragma GCC unroll 16
    for (int g = 0; g < 16; ++g) {
      sha_rounds4(a, g, g < 12);
      sha_rounds4(b, g, g < 12);
    }
    sha_add(a.state, before_a);
    sha_add(b.state, before_b);
  }
  sha_close(a.state, s0);
  sha_close(b.state, s1);
}

#endif

// ---- which one runs --------------------------------------------------------------------------

ShaImpl best_sha() {
#if defined(TS_SHA_X86)
  if (has_sha_lanes()) return ShaImpl::avx512;
  if (cpu_has_sha()) return ShaImpl::sha_ni;
#elif defined(TS_SHA_ARM)
  if (cpu_has_sha()) return ShaImpl::armv8;
#endif
  return ShaImpl::portable;
}

std::atomic<int>& sha_choice() {
  static std::atomic<int> choice{static_cast<int>(best_sha())};
  return choice;
}

struct Compressor {
  void (*one)(uint32_t*, const uint8_t*, size_t);
  void (*two)(uint32_t*, const uint8_t*, uint32_t*, const uint8_t*, size_t);
  bool lanes;  // kShaLanes messages of one length go through compress_lanes
};

Compressor compressor() {
#if defined(TS_SHA_X86)
  if (active_sha() == ShaImpl::avx512)
    return cpu_has_sha() ? Compressor{compress_native, compress2_native, true}
                         : Compressor{compress_portable, compress2_portable, true};
  if (active_sha() == ShaImpl::sha_ni) return {compress_native, compress2_native, false};
#elif defined(TS_SHA_ARM)
  if (active_sha() == ShaImpl::armv8) return {compress_native, compress2_native, false};
#endif
  return {compress_portable, compress2_portable, false};
}

// ---- whole messages --------------------------------------------------------------------------

void store_digest(const uint32_t* state, uint8_t* out) {
  for (int i = 0; i < 8; ++i) {
    out[4 * i] = static_cast<uint8_t>(state[i] >> 24);
    out[4 * i + 1] = static_cast<uint8_t>(state[i] >> 16);
    out[4 * i + 2] = static_cast<uint8_t>(state[i] >> 8);
    out[4 * i + 3] = static_cast<uint8_t>(state[i]);
  }
}

// Writes the last `rest` (< 64) message bytes, the padding and the length; returns 1 or 2 blocks.
size_t pad_tail(uint8_t tail[2 * kBlock], size_t rest, uint64_t message_bytes) {
  const size_t blocks = rest + 9 <= kBlock ? 1 : 2;
  std::memset(tail + rest, 0, blocks * kBlock - rest);
  tail[rest] = 0x80;
  const uint64_t bits = message_bytes * 8;
  for (int i = 0; i < 8; ++i)
    tail[blocks * kBlock - 1 - static_cast<size_t>(i)] = static_cast<uint8_t>(bits >> (8 * i));
  return blocks;
}

// The blocks of one prefixed message: a head block, a run of blocks inside the data, a tail.
struct Prefixed {
  uint8_t head[kBlock];
  uint8_t tail[2 * kBlock];
  const uint8_t* body;
  size_t head_blocks, body_blocks, tail_blocks;
};

void cut_prefixed(Prefixed& m, uint8_t prefix, const uint8_t* data, size_t nbytes) {
  const size_t total = nbytes + 1;
  if (total < kBlock) {
    m.head_blocks = m.body_blocks = 0;
    m.body = data;
    m.tail[0] = prefix;
    if (nbytes != 0) std::memcpy(m.tail + 1, data, nbytes);
    m.tail_blocks = pad_tail(m.tail, total, total);
    return;
  }
  m.head_blocks = 1;
  m.head[0] = prefix;
  std::memcpy(m.head + 1, data, kBlock - 1);
  m.body = data + (kBlock - 1);
  m.body_blocks = total / kBlock - 1;
  const size_t rest = total % kBlock;
  if (rest != 0) std::memcpy(m.tail, data + nbytes - rest, rest);
  m.tail_blocks = pad_tail(m.tail, rest, total);
}

void hash_prefixed(const Compressor& c, uint8_t prefix, const uint8_t* data, size_t nbytes,
                   uint8_t* out) {
  Prefixed m;
  cut_prefixed(m, prefix, data, nbytes);
  uint32_t state[8];
  std::memcpy(state, kInit, sizeof state);
  c.one(state, m.head, m.head_blocks);
  c.one(state, m.body, m.body_blocks);
  c.one(state, m.tail, m.tail_blocks);
  store_digest(state, out);
}

void hash_prefixed2(const Compressor& c, uint8_t prefix, const uint8_t* d0, const uint8_t* d1,
                    size_t nbytes, uint8_t* out0, uint8_t* out1) {
  Prefixed a, b;
  cut_prefixed(a, prefix, d0, nbytes);
  cut_prefixed(b, prefix, d1, nbytes);
  uint32_t sa[8], sb[8];
  std::memcpy(sa, kInit, sizeof sa);
  std::memcpy(sb, kInit, sizeof sb);
  c.two(sa, a.head, sb, b.head, a.head_blocks);
  c.two(sa, a.body, sb, b.body, a.body_blocks);
  c.two(sa, a.tail, sb, b.tail, a.tail_blocks);
  store_digest(sa, out0);
  store_digest(sb, out1);
}

// Messages data, data + stride, ... of `nbytes` bytes each; their hashes follow each other in `out`,
// which may lie in the messages' own memory.
void hash_prefixed_lanes(uint8_t prefix, const uint8_t* data, size_t stride, size_t nbytes,
                         uint8_t* out) {
  Prefixed m[kShaLanes];
  const uint8_t *head[kShaLanes], *body[kShaLanes], *tail[kShaLanes];
  ShaLanes state;
  for (size_t l = 0; l < kShaLanes; ++l) {
    cut_prefixed(m[l], prefix, data + l * stride, nbytes);
    head[l] = m[l].head, body[l] = m[l].body, tail[l] = m[l].tail;
    for (int w = 0; w < 8; ++w) state.words[w][l] = kInit[w];
  }
  compress_lanes(state, head, m[0].head_blocks);
  compress_lanes(state, body, m[0].body_blocks);
  compress_lanes(state, tail, m[0].tail_blocks);
  for (size_t l = 0; l < kShaLanes; ++l) {
    uint32_t own[8];
    for (int w = 0; w < 8; ++w) own[w] = state.words[w][l];
    store_digest(own, out + l * kHashBytes);
  }
}

constexpr uint8_t kLeafPrefix = 0x00;
constexpr uint8_t kNodePrefix = 0x01;

// Leaf hashes of leaves [first, last) of the buffer.
void hash_leaves(const Compressor& c, const uint8_t* data, size_t nbytes, size_t leaf,
                 size_t first, size_t last, uint8_t* out) {
  size_t i = first;
  for (; c.lanes && i + kShaLanes <= last && (i + kShaLanes) * leaf <= nbytes; i += kShaLanes) {
    hash_prefixed_lanes(kLeafPrefix, data + i * leaf, leaf, leaf, out);
    out += kShaLanes * kHashBytes;
  }
  for (; i + 1 < last && (i + 2) * leaf <= nbytes; i += 2, out += 2 * kHashBytes)
    hash_prefixed2(c, kLeafPrefix, data + i * leaf, data + (i + 1) * leaf, leaf, out,
                   out + kHashBytes);
  for (; i < last; ++i, out += kHashBytes) {
    const size_t at = i * leaf;
    const size_t size = nbytes - at < leaf ? nbytes - at : leaf;
    hash_prefixed(c, kLeafPrefix, data + at, size, out);
  }
}

// Pairs neighbours level by level; an odd last hash moves up unchanged. That is RFC 9162's tree.
void reduce_in_place(const Compressor& c, uint8_t* h, size_t n) {
  while (n > 1) {
    const size_t pairs = n / 2;
    size_t i = 0;
    for (; c.lanes && i + kShaLanes <= pairs; i += kShaLanes)
      hash_prefixed_lanes(kNodePrefix, h + 64 * i, 64, 64, h + 32 * i);
    for (; i + 1 < pairs; i += 2)
      hash_prefixed2(c, kNodePrefix, h + 64 * i, h + 64 * (i + 1), 64, h + 32 * i,
                     h + 32 * (i + 1));
    for (; i < pairs; ++i) hash_prefixed(c, kNodePrefix, h + 64 * i, 64, h + 32 * i);
    if (n % 2 != 0) std::memmove(h + 32 * pairs, h + 32 * (n - 1), kHashBytes);
    n = pairs + n % 2;
  }
}

struct TreeJob {
  Compressor c;
  const uint8_t* data;
  size_t nbytes, leaf, leaves;
  uint8_t* out;
};

void leaf_task(void* ctx, size_t task) {
  const TreeJob& job = *static_cast<const TreeJob*>(ctx);
  const size_t first = task * kTaskLeaves;
  const size_t last = first + kTaskLeaves < job.leaves ? first + kTaskLeaves : job.leaves;
  hash_leaves(job.c, job.data, job.nbytes, job.leaf, first, last, job.out + first * kHashBytes);
}

void root_task(void* ctx, size_t task) {
  const TreeJob& job = *static_cast<const TreeJob*>(ctx);
  const size_t first = task * kTaskLeaves;
  const size_t last = first + kTaskLeaves < job.leaves ? first + kTaskLeaves : job.leaves;
  uint8_t hashes[kTaskLeaves * kHashBytes];
  hash_leaves(job.c, job.data, job.nbytes, job.leaf, first, last, hashes);
  reduce_in_place(job.c, hashes, last - first);
  std::memcpy(job.out + task * kHashBytes, hashes, kHashBytes);
}

}  // namespace

bool sha_supported(ShaImpl impl) {
#if defined(TS_SHA_X86)
  if (impl == ShaImpl::sha_ni) return cpu_has_sha();
#endif
  return impl == ShaImpl::portable || impl == best_sha();
}

ShaImpl active_sha() {
  return static_cast<ShaImpl>(sha_choice().load(std::memory_order_relaxed));
}

bool set_sha_impl(ShaImpl impl) {
  if (!sha_supported(impl)) return false;
  sha_choice().store(static_cast<int>(impl), std::memory_order_relaxed);
  return true;
}

const char* sha_name(ShaImpl impl) {
  switch (impl) {
    case ShaImpl::avx512:
      return "avx512";
    case ShaImpl::sha_ni:
      return "sha_ni";
    case ShaImpl::armv8:
      return "armv8";
    case ShaImpl::portable:
      break;
  }
  return "portable";
}

void sha256(const uint8_t* data, size_t nbytes, uint8_t out[kHashBytes]) {
  const Compressor c = compressor();
  uint32_t state[8];
  std::memcpy(state, kInit, sizeof state);
  const size_t blocks = nbytes / kBlock, rest = nbytes % kBlock;
  uint8_t tail[2 * kBlock];
  if (rest != 0) std::memcpy(tail, data + blocks * kBlock, rest);
  const size_t tail_blocks = pad_tail(tail, rest, nbytes);
  c.one(state, data, blocks);
  c.one(state, tail, tail_blocks);
  store_digest(state, out);
}

void tensor_leaf_hashes(const uint8_t* data, size_t nbytes, size_t leaf, uint8_t* out) {
  const size_t leaves = leaf_count(nbytes, leaf);
  TreeJob job{compressor(), data, nbytes, leaf, leaves, out};
  parallel_for(leaf_count(leaves, kTaskLeaves), leaf_task, &job);
}

bool tensor_leaves_root(const uint8_t* data, size_t nbytes, size_t leaf, uint8_t out[kHashBytes]) {
  if (nbytes == 0) {
    sha256(data, 0, out);
    return true;
  }
  const size_t leaves = leaf_count(nbytes, leaf);
  const size_t tasks = leaf_count(leaves, kTaskLeaves);
  uint8_t* roots = static_cast<uint8_t*>(std::malloc(tasks * kHashBytes));
  if (roots == nullptr) return false;
  TreeJob job{compressor(), data, nbytes, leaf, leaves, roots};
  parallel_for(tasks, root_task, &job);
  reduce_in_place(job.c, roots, tasks);
  std::memcpy(out, roots, kHashBytes);
  std::free(roots);
  return true;
}

void merkle_root_in_place(uint8_t* hashes, size_t n, uint8_t out[kHashBytes]) {
  if (n == 0) {
    sha256(hashes, 0, out);
    return;
  }
  reduce_in_place(compressor(), hashes, n);
  std::memcpy(out, hashes, kHashBytes);
}

}  // namespace tallystick
