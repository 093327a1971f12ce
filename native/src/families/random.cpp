#include "families/random.hpp"

#include "tallystick/random.hpp"

namespace tallystick {
namespace TS_ISA {
namespace {

static_assert(kRandomAlign % kPhiloxWords == 0, "ranges begin at whole registers of blocks");

// Calls use(words, element, count) for consecutive stretches of at most kPhiloxWords words.
template <class F>
TS_INLINE void each_words(const RandomKey& key, size_t begin, size_t end, const F& use) {
  const PhiloxDraw draw{key.seed, key.draw, key.step};
  alignas(64) uint32_t words[kPhiloxWords];
  for (size_t at = begin; at < end; at += kPhiloxWords) {
    philox_words(draw, at / 4, words);
    use(words, at, ts_min(kPhiloxWords, end - at));
  }
}

void dropout_mask(RandomKey key, uint64_t threshold, size_t begin, size_t end, uint8_t* out) {
  if (threshold > 0xffffffffu) {  // no word reaches 2^32
    for (size_t i = 0; i < end - begin; ++i) out[i] = 0;
    return;
  }
  const u32v t = u_set1(static_cast<uint32_t>(threshold));
  each_words(key, begin, end, [=](const uint32_t* w, size_t at, size_t n) TS_LAMBDA {
    uint8_t* o = out + (at - begin);
    size_t i = 0;
    for (; i + kF32Lanes <= n; i += kF32Lanes) m_store(o + i, u_ge(u_load(w + i), t));
    if (i < n) m_store_n(o + i, u_ge(u_load(w + i), t), n - i);
#ifdef TALLYSTICK_FAULT
    o[0] ^= 1;
#endif
  });
}

void uniform(RandomKey key, float low, float high, size_t begin, size_t end, float* out) {
  const f32v lo = v_set1(low), width = v_sub(v_set1(high), lo);
  each_words(key, begin, end, [=](const uint32_t* w, size_t at, size_t n) TS_LAMBDA {
    for (size_t i = 0; i < n; i += kF32Lanes) {
      const f32v r = v_canon(v_planted(uniform_of(u_load(w + i), lo, width)));
      v_store_any(out + (at - begin) + i, r, ts_min(kF32Lanes, n - i));
    }
  });
}

// NUMERICS 8.7: elements take consecutive pairs of words.
void normal(RandomKey key, float mean, float std, size_t begin, size_t end, float* out) {
  const f32v mu = v_set1(mean), sigma = v_set1(std);
  each_words(key, 2 * begin, 2 * end, [=](const uint32_t* w, size_t at, size_t n) TS_LAMBDA {
    for (size_t i = 0; i < n; i += 2 * kF32Lanes) {
      uint32_t first[kF32Lanes], second[kF32Lanes];
      for (size_t k = 0; k < kF32Lanes; ++k) {
        first[k] = w[i + 2 * k];
        second[k] = w[i + 2 * k + 1];
      }
      const f32v z = normal_of(u_load(first), u_load(second), mu, sigma);
      const f32v r = v_canon(v_planted(z));
      v_store_any(out + (at / 2 - begin) + i / 2, r, ts_min(kF32Lanes, (n - i) / 2));
    }
  });
}

void words(RandomKey key, size_t begin, size_t end, uint32_t* out) {
  each_words(key, begin, end, [=](const uint32_t* w, size_t at, size_t n) TS_LAMBDA {
    for (size_t i = 0; i < n; ++i) out[at - begin + i] = w[i];
  });
}

void block(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]) {
  philox4x32_10(counter, PhiloxKey{key[0], key[1]}, out);
}

}  // namespace
}  // namespace TS_ISA

namespace isa = TS_ISA;
TS_DEFINE_TABLE(RandomTable, random) = {
    isa::dropout_mask, isa::uniform, isa::normal, isa::words, isa::block};

}  // namespace tallystick
