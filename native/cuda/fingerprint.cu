// Digests of the elementary functions over ranges of arguments (input_digest.hpp), which are compared
// with those of docs/proofs/elementary.json. A block writes the sum of its terms, modulo 2^64: every
// order of the additions gives the same sum.
#include "device.hpp"

#include "tallystick/elementary.hpp"
#include "tallystick/input_digest.hpp"

namespace tallystick::TS_ISA {

struct Fingerprint {
  int64_t first, count;  // of the arguments, by their bits
  uint64_t* sums;        // one for each block
};

constexpr uint32_t kMostWarps = 8;

template <class F>
TS_INLINE void digest(const Fingerprint& p, const F& f) {
  TS_SHARED(uint64_t, of_warp, kMostWarps);
  uint64_t sum = 0;
  for (int64_t i = first_item(); i < p.count; i += item_step()) {
    const uint32_t x = static_cast<uint32_t>(p.first + i);
    sum += digest_term(x, float_bits(f(bits_float(x))));
  }
  for (uint32_t mask = kWarp / 2; mask >= 1; mask /= 2) sum += warp_xor(sum, mask);
  if (lane_index() == 0) of_warp[warp_index()] = sum;
  block_barrier();
  if (thread_index() != 0) return;
  sum = 0;
  for (uint32_t warp = 0; warp < thread_count() / kWarp; ++warp) sum += of_warp[warp];
  p.sums[block_x()] = sum;
}

#define TS_FINGERPRINT(name)                                             \
  TS_KERNEL(fingerprint_##name, Fingerprint, kMostWarps * kWarp) {       \
    digest(p, [](float x) { return cr_##name(x); });                     \
  }

TS_FINGERPRINT(exp)
TS_FINGERPRINT(log)
TS_FINGERPRINT(tanh)
TS_FINGERPRINT(erf)
TS_FINGERPRINT(sigmoid)
TS_FINGERPRINT(sin)
TS_FINGERPRINT(cos)
TS_FINGERPRINT(rsqrt)
TS_FINGERPRINT(expm1)
TS_FINGERPRINT(log1p)
TS_FINGERPRINT(exp2)
TS_FINGERPRINT(log2)

}  // namespace tallystick::TS_ISA
