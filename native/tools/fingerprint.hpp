// The two marks of what a kernel of an elementary function computes: a fingerprint of 2^18 sampled
// arguments, and a digest of all arguments (input_digest.hpp). docs/proofs/elementary.json has both.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#define TS_ISA scalar
#define TS_ISA_SCALAR 1
#include "tallystick/input_digest.hpp"

#include "dispatch.hpp"
#include "families/elementary.hpp"

namespace fingerprint {

using tallystick::Isa;
using tallystick::UnaryFn;
using tallystick::scalar::digest_term;
using tallystick::scalar::mix64;

// Shards, and random arguments of each, of a full run.
constexpr unsigned kShards = 4096, kRandom = 4096;

inline const tallystick::ElementaryTable& table_of(Isa isa) {
  switch (isa) {
#if defined(TALLYSTICK_HAVE_AVX2)
    case Isa::avx512: return tallystick::elementary_table_avx512;
    case Isa::avx2: return tallystick::elementary_table_avx2;
#endif
#if defined(TALLYSTICK_HAVE_NEON)
    case Isa::neon: return tallystick::elementary_table_neon;
#endif
    default: return tallystick::elementary_table_scalar;
  }
}

// Has this build kernels of `isa`? Whether the machine can run them is isa_supported.
inline bool compiled(Isa isa) {
#if defined(TALLYSTICK_HAVE_AVX2)
  if (isa == Isa::avx2 || isa == Isa::avx512) return true;
#endif
#if defined(TALLYSTICK_HAVE_NEON)
  if (isa == Isa::neon) return true;
#endif
  return isa == Isa::scalar;
}

// The instruction sets for which `has` holds, without `isa`.
inline std::vector<Isa> others_of(Isa isa, bool (*has)(Isa)) {
  std::vector<Isa> found;
  for (Isa other : {Isa::scalar, Isa::avx2, Isa::avx512, Isa::neon})
    if (other != isa && has(other)) found.push_back(other);
  return found;
}

// The fingerprint that a full run decided on `isa` and compared with `others` has. The samples may be
// computed by another instruction set: its bits are the same.
inline uint64_t sampled(UnaryFn kernel, Isa isa, const std::vector<Isa>& others,
                        unsigned shards = kShards, unsigned random = kRandom) {
  uint64_t h = shards * 1000003ull + random;
  uint32_t x[256], y[256];
  float in[256], out[256];
  for (uint64_t block = 0; block < 1024; ++block) {
    for (int i = 0; i < 256; ++i) x[i] = static_cast<uint32_t>(mix64(block * 256 + i));
    std::memcpy(in, x, sizeof in);
    kernel(in, out, 256);
    std::memcpy(y, out, sizeof y);
    for (uint32_t v : y) h = mix64(h ^ v);
  }
  for (Isa other : others) h = mix64(h ^ static_cast<uint64_t>(other));
  return mix64(h ^ static_cast<uint64_t>(isa));
}

// The sum of the digest's terms for the `n` arguments whose bits begin with `first`.
inline uint64_t digest_of(uint64_t first, const float* results, size_t n) {
  uint64_t sum = 0;
  for (size_t i = 0; i < n; ++i) {
    uint32_t bits;
    std::memcpy(&bits, results + i, 4);
    sum += digest_term(static_cast<uint32_t>(first + i), bits);
  }
  return sum;
}

}  // namespace fingerprint
