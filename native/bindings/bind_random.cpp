// Python's door to random tensors (NUMERICS 8).
#include "arrays.hpp"
#include "families/random.hpp"

namespace tallystick {
namespace {

using arrays::Out;
using arrays::require;
using Bytes = nb::ndarray<nb::c_contig, nb::device::cpu>;
using Words = nb::ndarray<uint32_t, nb::c_contig, nb::device::cpu>;
using WordsIn = nb::ndarray<const uint32_t, nb::c_contig, nb::device::cpu>;

constexpr size_t kGrain = 16384 / kRandomAlign;  // in units of kRandomAlign elements

// fn(key, parameters, begin, end, where) over the elements of `out`, cut where registers of blocks
// begin.
template <class Fn, class T, class... P>
void draw_all(Fn fn, RandomKey key, T* out, size_t n, P... parameters) {
  unlocked_ranges((n + kRandomAlign - 1) / kRandomAlign, kGrain, [&](size_t b, size_t e) {
    const size_t begin = b * kRandomAlign, end = std::min(e * kRandomAlign, n);
    fn(key, parameters..., begin, end, out + begin);
  });
}

void dropout_mask(uint64_t seed, uint32_t step, uint32_t draw, uint64_t threshold, Bytes out) {
  require(out.dtype().bits == 8, "the mask must be bool or uint8");
  draw_all(TS_DISPATCH(random).dropout_mask, {seed, draw, step}, static_cast<uint8_t*>(out.data()),
           out.size(), threshold);
}

void uniform(uint64_t seed, uint32_t step, uint32_t draw, double low, double high, Out out) {
  draw_all(TS_DISPATCH(random).uniform, {seed, draw, step}, out.data(), out.size(),
           static_cast<float>(low), static_cast<float>(high));
}

void normal(uint64_t seed, uint32_t step, uint32_t draw, double mean, double std, Out out) {
  draw_all(TS_DISPATCH(random).normal, {seed, draw, step}, out.data(), out.size(),
           static_cast<float>(mean), static_cast<float>(std));
}

// Row r is out[r·classes ..). Rows are cut into stretches, because there may be one row or many.
void gumbel(uint64_t seed, uint32_t step, uint32_t draw, arrays::Index place, size_t classes,
            Out out) {
  constexpr size_t kStretch = 4096, kStretches = 4;
  const size_t rows = place.size(), blocks = (classes + 3) / 4;
  require(classes == 0 ? out.size() == 0 : out.size() / classes == rows && out.size() % classes == 0,
          "the output is places by classes");
  const size_t cuts = (classes + kStretch - 1) / kStretch;
  const auto fn = TS_DISPATCH(random).gumbel;
  const RandomKey key = {seed, draw, step};
  unlocked_ranges(rows * cuts, kStretches, [&](size_t b, size_t e) {
    for (size_t i = b; i < e; ++i) {
      const size_t row = i / cuts, begin = i % cuts * kStretch;
      const uint64_t block = static_cast<uint64_t>(place.data()[row]) * blocks + begin / 4;
      fn(key, block, std::min(kStretch, classes - begin), out.data() + row * classes + begin);
    }
  });
}

// Words of elements [first, first + out.size()); first must be a multiple of 128.
void philox_words(uint64_t seed, uint32_t step, uint32_t draw, uint64_t first, Words out) {
  require(first % kRandomAlign == 0, "first must be a multiple of 128");
  TS_DISPATCH(random).words({seed, draw, step}, first, first + out.size(), out.data());
}

void philox_block(WordsIn counter, WordsIn key, Words out) {
  require(counter.size() == 4 && key.size() == 2 && out.size() == 4,
          "counter and output have four words, the key two");
  TS_DISPATCH(random).block(counter.data(), key.data(), out.data());
}

}  // namespace
}  // namespace tallystick

void bind_random(nb::module_& m) {
  using namespace tallystick;
  define(m, "dropout_mask", &dropout_mask, "seed"_a, "step"_a, "draw"_a, "threshold"_a,
         as_is("out"), "Kept iff word >= threshold (NUMERICS 8.4).");
  define(m, "uniform", &uniform, "seed"_a, "step"_a, "draw"_a, "low"_a, "high"_a, as_is("out"),
         "Uniform floats (NUMERICS 8.6).");
  define(m, "normal", &normal, "seed"_a, "step"_a, "draw"_a, "mean"_a, "std"_a, as_is("out"),
         "Normal floats (NUMERICS 8.7).");
  define(m, "gumbel", &gumbel, "seed"_a, "step"_a, "draw"_a, as_is("place"), "classes"_a,
         as_is("out"), "Gumbel noise by place and class (NUMERICS 8.8).");
  define(m, "philox_words", &philox_words, "seed"_a, "step"_a, "draw"_a, "first"_a, as_is("out"),
         "The 32-bit words of elements first, first+1, ... (NUMERICS 8.1).");
  define(m, "philox_block", &philox_block, as_is("counter"), as_is("key"), as_is("out"),
         "One block of Philox4x32-10.");
}
