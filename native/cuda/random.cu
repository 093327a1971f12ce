// Random tensors (NUMERICS 8). The key (seed, step) is read from the device's memory.
#include "point.hpp"

#include "tallystick/random.hpp"

namespace tallystick::TS_ISA {

struct Random {
  int64_t count, fours;
  const int64_t* key;
  void* out;
  int64_t draw;
  int64_t threshold;  // of dropout_mask
  F32 p0, p1;
  Refusal refusal;
};

// A key outside of its range is refused (NUMERICS 8.3).
template <class P>
TS_INLINE void check_key(const P& p) {
  if (first_item() == 0 && (p.key[0] < 0 || p.key[1] < 0 || p.key[1] > 0xffffffffll))
    refuse(p.refusal, 0);
}

// Words of block `number` of the draw (NUMERICS 8.1).
template <class P>
TS_INLINE Pack<uint32_t, 4> words_of(const P& p, int64_t number) {
  const uint64_t seed = static_cast<uint64_t>(p.key[0]), block = static_cast<uint64_t>(number);
  const uint32_t counter[4] = {static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32),
                               static_cast<uint32_t>(p.draw), static_cast<uint32_t>(p.key[1])};
  const PhiloxKey key = {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)};
  Pack<uint32_t, 4> words;
  philox4x32_10(counter, key, words.of);
  return words;
}

// A thread takes four neighbouring elements: element(i, j) is number j of those from i on.
template <class Out, class F>
TS_INLINE void drawn(const Random& p, const F& four) {
  check_key(p);
  Out* out = static_cast<Out*>(p.out);
  for (int64_t i = 4 * first_item(); i < p.count; i += 4 * item_step()) {
    const Pack<Out, 4> made = four(i);
    if (p.fours && i + 4 <= p.count) {
      give<4>(out + i, made);
      continue;
    }
    TS_UNROLL
    for (int j = 0; j < 4; ++j)
      if (i + j < p.count) out[i + j] = made.of[j];
  }
}

TS_KERNEL(random_dropout_mask, Random, 256) {
  drawn<uint8_t>(p, [&](int64_t i) {
    const Pack<uint32_t, 4> words = words_of(p, i / 4);
    Pack<uint8_t, 4> kept;
    TS_UNROLL
    for (int j = 0; j < 4; ++j) kept.of[j] = static_cast<int64_t>(words.of[j]) >= p.threshold;
    return kept;
  });
}

TS_KERNEL(random_uniform, Random, 256) {
  const float low = p.p0.value, width = p.p1.value - low;
  drawn<float>(p, [&](int64_t i) {
    const Pack<uint32_t, 4> words = words_of(p, i / 4);
    Pack<float, 4> made;
    TS_UNROLL
    for (int j = 0; j < 4; ++j) made.of[j] = finished(uniform_of(u_set1(words.of[j]), low, width));
    return made;
  });
}

// Elements take consecutive pairs of words.
TS_KERNEL(random_normal, Random, 256) {
  drawn<float>(p, [&](int64_t i) {
    Pack<float, 4> made;
    TS_UNROLL
    for (int j = 0; j < 4; j += 2) {
      const Pack<uint32_t, 4> words = words_of(p, (i + j) / 2);
      for (int k = 0; k < 2; ++k)
        made.of[j + k] = finished(normal_of(u_set1(words.of[2 * k]), u_set1(words.of[2 * k + 1]),
                                            p.p0.value, p.p1.value));
    }
    return made;
  });
}

// Noise by place and class (8.8): each row begins with a block of its own.
struct Noise {
  int64_t blocks, each;  // of all rows; of one
  int64_t classes, fours;
  const int64_t *key, *place;
  float* out;
  int64_t draw;
  Refusal refusal;
};
TS_KERNEL(random_gumbel, Noise, 256) {
  check_key(p);
  for (int64_t i = first_item(); i < p.blocks; i += item_step()) {
    const int64_t row = i / p.each, block = i - row * p.each;
    const Pack<uint32_t, 4> words = words_of(p, p.place[row] * p.each + block);
    Pack<float, 4> made;
    TS_UNROLL
    for (int j = 0; j < 4; ++j) made.of[j] = finished(gumbel_of(u_set1(words.of[j])));
    float* out = p.out + row * p.classes + 4 * block;
    if (p.fours) {
      give<4>(out, made);
      continue;
    }
    TS_UNROLL
    for (int j = 0; j < 4; ++j)
      if (4 * block + j < p.classes) out[j] = made.of[j];
  }
}

}  // namespace tallystick::TS_ISA
