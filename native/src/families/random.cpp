#include "families/random.hpp"

#include "tallystick/random.hpp"

namespace tallystick {
namespace TS_ISA {
namespace {

static_assert(kRandomAlign % kPhiloxWords == 0, "ranges begin at whole registers of blocks");

// Calls use(words, first, count) for stretches of at most kPhiloxWords of the n words from `block`
// on, which are numbered from 0.
template <class F>
TS_INLINE void each_words(const RandomKey& key, uint64_t block, size_t n, const F& use) {
  const PhiloxDraw draw{key.seed, key.draw, key.step};
  alignas(64) uint32_t words[kPhiloxWords];
  for (size_t at = 0; at < n; at += kPhiloxWords) {
    philox_words(draw, block + at / 4, words);
    use(words, at, ts_min(kPhiloxWords, n - at));
  }
}

void dropout_mask(RandomKey key, uint64_t threshold, size_t begin, size_t end, uint8_t* out) {
  if (threshold > 0xffffffffu) {  // no word reaches 2^32
    for (size_t i = 0; i < end - begin; ++i) out[i] = 0;
    return;
  }
  const u32v t = u_set1(static_cast<uint32_t>(threshold));
  each_words(key, begin / 4, end - begin, [=](const uint32_t* w, size_t at, size_t n) TS_LAMBDA {
    uint8_t* o = out + at;
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
  each_words(key, begin / 4, end - begin, [=](const uint32_t* w, size_t at, size_t n) TS_LAMBDA {
    for (size_t i = 0; i < n; i += kF32Lanes) {
      const f32v r = v_canon(v_planted(uniform_of(u_load(w + i), lo, width)));
      v_store_any(out + at + i, r, ts_min(kF32Lanes, n - i));
    }
  });
}

// NUMERICS 8.7: elements take consecutive pairs of words.
void normal(RandomKey key, float mean, float std, size_t begin, size_t end, float* out) {
  const f32v mu = v_set1(mean), sigma = v_set1(std);
  each_words(key, begin / 2, 2 * (end - begin), [=](const uint32_t* w, size_t at, size_t n) TS_LAMBDA {
    for (size_t i = 0; i < n; i += 2 * kF32Lanes) {
      uint32_t first[kF32Lanes], second[kF32Lanes];
      for (size_t k = 0; k < kF32Lanes; ++k) {
        first[k] = w[i + 2 * k];
        second[k] = w[i + 2 * k + 1];
      }
      const f32v z = normal_of(u_load(first), u_load(second), mu, sigma);
      const f32v r = v_canon(v_planted(z));
      v_store_any(out + at / 2 + i / 2, r, ts_min(kF32Lanes, (n - i) / 2));
    }
  });
}

// NUMERICS 8.8: a row begins with a block of its own.
void gumbel(RandomKey key, uint64_t block, size_t n, float* out) {
  each_words(key, block, n, [=](const uint32_t* w, size_t at, size_t count) TS_LAMBDA {
    for (size_t i = 0; i < count; i += kF32Lanes) {
      const f32v r = v_canon(v_planted(gumbel_of(u_load(w + i))));
      v_store_any(out + at + i, r, ts_min(kF32Lanes, count - i));
    }
  });
}

void words(RandomKey key, size_t begin, size_t end, uint32_t* out) {
  each_words(key, begin / 4, end - begin, [=](const uint32_t* w, size_t at, size_t n) TS_LAMBDA {
    for (size_t i = 0; i < n; ++i) out[at + i] = w[i];
  });
}

void block(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]) {
  philox4x32_10(counter, PhiloxKey{key[0], key[1]}, out);
}

}  // namespace
}  // namespace TS_ISA

namespace isa = TS_ISA;
TS_DEFINE_TABLE(RandomTable, random) = {
    isa::dropout_mask, isa::uniform, isa::normal, isa::gumbel, isa::words, isa::block};

}  // namespace tallystick
