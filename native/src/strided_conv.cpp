// The input gradient of a strided convolution, without the terms that the stride makes zero.
//
// NUMERICS 2.7 multiplies a weight by +0 wherever (h + padding - i*dilation) is no multiple of the
// stride. Rows and columns of equal remainder (a phase) have the same such terms, and here a phase
// is a product without them. The chunks stay those of the whole sum. With finite weights a term
// left out is +0 or -0. It changes a partial sum of -0 to +0 at most, and never another one: so the
// bits are those of 2.7, unless a result is -0. Such results are computed again with every term.
//
// Compiled once: the products are the kernels' of the instruction set in use.
#include "strided_conv.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <new>
#include <vector>

#include "conv_phases.hpp"
#include "thread_pool.hpp"

namespace tallystick {
namespace {

// Results of a phase that are computed at once.
constexpr size_t kMostFloats = size_t(1) << 20;

uint32_t bits_of(float x) {
  uint32_t u;
  std::memcpy(&u, &x, sizeof u);
  return u;
}

// The weights of a phase's terms: [og, taps of the phase, cg].
std::vector<float> phase_weights(const ConvInputGrad& c, const Phase& p) {
  const size_t taps = c.g.kh * c.g.kw;
  std::vector<float> weight(c.og * p.tap.size() * c.cg);
  float* to = weight.data();
  for (size_t o = 0; o < c.og; ++o) {
    for (const size_t tap : p.tap) {
      const float* from = c.weight + o * c.cg * taps + tap;
      for (size_t i = 0; i < c.cg; ++i) *to++ = from[i * taps];
    }
  }
  return weight;
}

struct Spread {
  const ConvInputGrad* c;
  const Phase* p;
  const float* results;       // [cg, images, rows, cols], or null: every result is +0
  size_t first, images, rows, cols;
};

// Task: one channel's results go to their places.
void spread_task(void* context, size_t channel) {
  const Spread& s = *static_cast<const Spread*>(context);
  const ConvInputGrad& c = *s.c;
  const ConvGeometry& g = c.g;
  const size_t sh = static_cast<size_t>(g.sh), sw = static_cast<size_t>(g.sw);
  const float* from =
      s.results == nullptr ? nullptr : s.results + channel * s.images * s.rows * s.cols;
  for (size_t image = 0; image < s.images; ++image) {
    const ptrdiff_t which = static_cast<ptrdiff_t>(s.first + image);
    float* plane = c.out + which * c.out_step + channel * g.h * g.w;
    for (size_t y = 0; y < s.rows; ++y) {
      float* line = plane + (y * sh + s.p->y0) * g.w + s.p->x0;
      if (from == nullptr) {
        for (size_t x = 0; x < s.cols; ++x) line[x * sw] = 0.0f;
        continue;
      }
      for (size_t x = 0; x < s.cols; ++x) {
        float value = *from++;
        if (bits_of(value) == 0x80000000u)
          value = input_grad_of_every_term(c, c.grad + which * c.grad_step, channel,
                                           y * sh + s.p->y0, x * sw + s.p->x0);
        line[x * sw] = value;
      }
    }
  }
}

bool run_phase(const ConvInputGrad& c, const Phase& phase, std::vector<float>& results) {
  const ConvGeometry& g = c.g;
  const size_t rows = phase.rows(g.h), cols = phase.cols(g.w);
  if (phase.tap.empty()) {
    Spread s = {&c, &phase, nullptr, 0, c.images, rows, cols};
    parallel_for(c.cg, spread_task, &s);
    return true;
  }
  const std::vector<float> weight = phase_weights(c, phase);
  const ConvTaps taps = {phase.tap.size(), phase.dy.data(), phase.dx.data(), 1, 1, rows, cols,
                         g.oh, g.ow, c.grad_step};
  const size_t fit = kMostFloats / std::max(c.cg * rows * cols, size_t(1));
  const size_t block = std::min(std::max(fit, size_t(1)), c.images);
  for (size_t first = 0; first < c.images; first += block) {
    const size_t images = std::min(block, c.images - first);
    GemmProblem p = {};
    p.m = c.cg;
    p.n = images * rows * cols;
    p.k = c.og * taps.count;
    p.a.data = weight.data();
    p.a.s_x = 1;
    p.a.s_k = static_cast<ptrdiff_t>(c.cg);
    p.b.kind = OperandKind::conv_taps;
    p.b.data = c.grad + static_cast<ptrdiff_t>(first) * c.grad_step;
    p.b.taps = &taps;
    p.chunk_ends = phase.chunk_ends.data();
    p.chunk_count = phase.chunk_ends.size();
    if (results.size() < p.m * p.n) results.resize(p.m * p.n);
    p.out = results.data();
    p.ldc = static_cast<ptrdiff_t>(p.n);
    if (!TS_DISPATCH(gemm).gemm(p, 1, 0, 0)) return false;
    Spread s = {&c, &phase, results.data(), first, images, rows, cols};
    parallel_for(c.cg, spread_task, &s);
  }
  return true;
}

// The form of 2.7 as it stands, image by image.
bool with_every_term(const ConvInputGrad& c) {
  const ConvGeometry& g = c.g;
  const size_t taps = g.kh * g.kw;
  GemmProblem p = {};
  p.m = c.cg;
  p.n = g.h * g.w;
  p.k = c.og * taps;
  p.a.data = c.weight;
  p.a.s_x = static_cast<ptrdiff_t>(taps);
  p.a.s_k = 1;
  p.a.k_inner = taps;
  p.a.s_k_outer = static_cast<ptrdiff_t>(c.cg * taps);
  p.b.data = c.grad;
  p.b.conv = g;
  p.b.kind = OperandKind::conv_input_grad;
  p.out = c.out;
  p.ldc = static_cast<ptrdiff_t>(g.h * g.w);
  return TS_DISPATCH(gemm).gemm(p, c.images, c.grad_step, c.out_step);
}

}  // namespace

float input_grad_of_every_term(const ConvInputGrad& c, const float* grad, size_t channel, size_t h,
                               size_t w) {
  const ConvGeometry& g = c.g;
  const size_t taps = g.kh * g.kw, terms = c.og * taps;
  float total = 0.0f;
  for (size_t k0 = 0; k0 < terms; k0 += kChunkTerms) {
    float p = 0.0f;
    for (size_t k = k0; k < std::min(k0 + kChunkTerms, terms); ++k) {
      const size_t o = k / taps, tap = k % taps;
      const ptrdiff_t y = static_cast<ptrdiff_t>(h) + g.ph -
                          static_cast<ptrdiff_t>(tap / g.kw) * g.dh;
      const ptrdiff_t x = static_cast<ptrdiff_t>(w) + g.pw -
                          static_cast<ptrdiff_t>(tap % g.kw) * g.dw;
      float value = 0.0f;
      if (y >= 0 && x >= 0 && y % g.sh == 0 && x % g.sw == 0 &&
          y / g.sh < static_cast<ptrdiff_t>(g.oh) && x / g.sw < static_cast<ptrdiff_t>(g.ow))
        value = grad[o * g.oh * g.ow + static_cast<size_t>(y / g.sh) * g.ow +
                     static_cast<size_t>(x / g.sw)];
      p = std::fmaf(value, c.weight[(o * c.cg + channel) * taps + tap], p);
    }
    total = k0 == 0 ? p : total + p;
  }
  return total;
}

bool all_finite(const float* x, size_t n) {
  for (size_t i = 0; i < n; ++i)
    if ((bits_of(x[i]) & 0x7f800000u) == 0x7f800000u) return false;
  return true;
}

bool strided_input_grad(const ConvInputGrad& c) {
  const ConvGeometry& g = c.g;
  if (c.images == 0 || c.cg == 0 || g.h == 0 || g.w == 0) return true;
  if (c.og == 0 || !all_finite(c.weight, c.og * c.cg * g.kh * g.kw)) return with_every_term(c);
  try {
    std::vector<float> results;
    for (size_t py = 0; py < std::min(static_cast<size_t>(g.sh), g.h); ++py)
      for (size_t px = 0; px < std::min(static_cast<size_t>(g.sw), g.w); ++px)
        if (!run_phase(c, input_grad_phase(g, c.og, py, px), results)) return false;
  } catch (const std::bad_alloc&) {
    return false;
  }
  return true;
}

}  // namespace tallystick
