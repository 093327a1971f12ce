// Python's door to random tensors (NUMERICS 8).
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include "define.hpp"
#include "families/random.hpp"
#include "thread_pool.hpp"

namespace nb = nanobind;

namespace tallystick {
namespace {

using Floats = nb::ndarray<float, nb::c_contig, nb::device::cpu>;
using Bytes = nb::ndarray<nb::c_contig, nb::device::cpu>;
using Words = nb::ndarray<uint32_t, nb::c_contig, nb::device::cpu>;
using WordsIn = nb::ndarray<const uint32_t, nb::c_contig, nb::device::cpu>;

constexpr size_t kGrain = 16384 / kRandomAlign;  // in units of kRandomAlign elements

// f(begin, end) over [first, first + n), cut where registers of blocks begin.
template <class F>
void over(size_t n, F&& f) {
  parallel_ranges((n + kRandomAlign - 1) / kRandomAlign, kGrain, [&](size_t b, size_t e) {
    const size_t end = e * kRandomAlign;
    f(b * kRandomAlign, end < n ? end : n);
  });
}

void dropout_mask(uint64_t seed, uint32_t step, uint32_t draw, uint64_t threshold, Bytes out) {
  if (out.dtype().bits != 8) throw nb::value_error("the mask must be bool or uint8");
  const RandomKey key{seed, draw, step};
  const auto fn = TS_DISPATCH(random).dropout_mask;
  uint8_t* o = static_cast<uint8_t*>(out.data());
  const size_t n = out.size();
  nb::gil_scoped_release unlocked;
  over(n, [&](size_t b, size_t e) { fn(key, threshold, b, e, o + b); });
}

void uniform(uint64_t seed, uint32_t step, uint32_t draw, double low, double high, Floats out) {
  const RandomKey key{seed, draw, step};
  const auto fn = TS_DISPATCH(random).uniform;
  float* o = out.data();
  const float lo = static_cast<float>(low), hi = static_cast<float>(high);
  const size_t n = out.size();
  nb::gil_scoped_release unlocked;
  over(n, [&](size_t b, size_t e) { fn(key, lo, hi, b, e, o + b); });
}

void normal(uint64_t seed, uint32_t step, uint32_t draw, double mean, double std, Floats out) {
  const RandomKey key{seed, draw, step};
  const auto fn = TS_DISPATCH(random).normal;
  float* o = out.data();
  const float mu = static_cast<float>(mean), sigma = static_cast<float>(std);
  const size_t n = out.size();
  nb::gil_scoped_release unlocked;
  over(n, [&](size_t b, size_t e) { fn(key, mu, sigma, b, e, o + b); });
}

// Words of elements [first, first + out.size()); first must be a multiple of 128.
void philox_words(uint64_t seed, uint32_t step, uint32_t draw, uint64_t first, Words out) {
  if (first % kRandomAlign != 0) throw nb::value_error("first must be a multiple of 128");
  TS_DISPATCH(random).words({seed, draw, step}, first, first + out.size(), out.data());
}

void philox_block(WordsIn counter, WordsIn key, Words out) {
  if (counter.size() != 4 || key.size() != 2 || out.size() != 4)
    throw nb::value_error("counter and output have four words, the key two");
  TS_DISPATCH(random).block(counter.data(), key.data(), out.data());
}

}  // namespace
}  // namespace tallystick

void bind_random(nb::module_& m) {
  using namespace tallystick;
  define(m, "dropout_mask", &dropout_mask, nb::arg("seed"), nb::arg("step"), nb::arg("draw"),
         nb::arg("threshold"), nb::arg("out").noconvert(),
         "Kept iff word >= threshold (NUMERICS 8.4).");
  define(m, "uniform", &uniform, nb::arg("seed"), nb::arg("step"), nb::arg("draw"), nb::arg("low"),
         nb::arg("high"), nb::arg("out").noconvert(), "Uniform floats (NUMERICS 8.6).");
  define(m, "normal", &normal, nb::arg("seed"), nb::arg("step"), nb::arg("draw"), nb::arg("mean"),
         nb::arg("std"), nb::arg("out").noconvert(), "Normal floats (NUMERICS 8.7).");
  define(m, "philox_words", &philox_words, nb::arg("seed"), nb::arg("step"), nb::arg("draw"),
         nb::arg("first"), nb::arg("out").noconvert(),
         "The 32-bit words of elements first, first+1, ... (NUMERICS 8.1).");
  define(m, "philox_block", &philox_block, nb::arg("counter").noconvert(),
         nb::arg("key").noconvert(),
         nb::arg("out").noconvert(), "One block of Philox4x32-10.");
}
