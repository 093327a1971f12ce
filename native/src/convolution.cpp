// Compiled once: the products are the kernels' of the instruction set in use.
#include "convolution.hpp"

#include <algorithm>
#include <cstring>
#include <new>

#include "grouped_conv.hpp"
#include "strided_conv.hpp"
#include "thread_pool.hpp"

namespace tallystick {
namespace {

// Planes of at most so many results are computed for all images at once, if enough channels repay the
// packing of so short rows.
constexpr size_t kSmallPlane = 64, kRepaid = 32;
// Results that are computed at once.
constexpr size_t kMostFloats = size_t(1) << 20;

// A 1x1 convolution with unit stride and no padding is a plain matrix product.
bool pointwise(const ConvGeometry& g) {
  return g.kh == 1 && g.kw == 1 && g.sh == 1 && g.sw == 1 && g.ph == 0 && g.pw == 0;
}

struct Spread {
  const float* results;       // [channels, images, plane]
  float* out;                 // of the first image
  ptrdiff_t out_step;
  size_t channels, images, plane;
};

void spread_task(void* context, size_t image) {
  const Spread& s = *static_cast<const Spread*>(context);
  float* to = s.out + static_cast<ptrdiff_t>(image) * s.out_step;
  for (size_t c = 0; c < s.channels; ++c)
    std::memcpy(to + c * s.plane, s.results + (c * s.images + image) * s.plane,
                s.plane * sizeof(float));
}

// The product p, whose A, epilogue and sizes are one image's, for all images. Its B is the phase's
// terms in a source of h x w at `source`, `source_step` apart.
bool all_images(GemmProblem p, const Phase& phase, size_t images, size_t rows, size_t cols,
                const float* source, size_t h, size_t w, ptrdiff_t source_step, float* out,
                ptrdiff_t out_step) {
  const ConvTaps taps = {phase.tap.size(), phase.dy.data(), phase.dx.data(), phase.from_y,
                         phase.from_x, rows, cols, h, w, source_step};
  const size_t plane = rows * cols;
  const size_t block = std::min(images, std::max(kMostFloats / (p.m * plane), size_t(1)));
  try {
    std::vector<float> results(p.m * plane * block);
    p.b.kind = OperandKind::conv_taps;
    p.b.taps = &taps;
    p.out = results.data();
    for (size_t first = 0; first < images; first += block) {
      const size_t here = std::min(block, images - first);
      p.n = here * plane;
      p.ldc = static_cast<ptrdiff_t>(p.n);
      p.b.data = source + static_cast<ptrdiff_t>(first) * source_step;
      if (!TS_DISPATCH(gemm).gemm(p, 1, 0, 0)) return false;
      Spread s = {results.data(), out + static_cast<ptrdiff_t>(first) * out_step, out_step, p.m,
                  here, plane};
      parallel_for(here, spread_task, &s);
    }
  } catch (const std::bad_alloc&) {
    return false;
  }
  return true;
}

bool at_once(const ConvShape& s, size_t channels, size_t plane) {
  if (s.n < 2 || plane == 0 || plane > kSmallPlane || channels < kRepaid) return false;
  const size_t lanes = TS_DISPATCH(conv).lanes;
  // One image's results fill the tiles. Or its operand is read in its own place, which costs less
  // than vectors that are not half empty.
  if (plane % (2 * lanes) == 0) return false;
  return !pointwise(s.g) || 2 * plane <= lanes;
}

// The terms that a convolution takes of planes of `plane` elements: they lie there, or are of `kind`.
GemmOperand planes_of(const ConvGeometry& g, const float* source, size_t plane, OperandKind kind) {
  GemmOperand b = {};
  b.data = source;
  b.conv = g;
  if (pointwise(g)) {
    b.s_x = 1;
    b.s_k = static_cast<ptrdiff_t>(plane);
  } else {
    b.kind = kind;
  }
  return b;
}

}  // namespace

bool convolution_forward(const ConvShape& s, const float* x, const float* w, const float* bias,
                         float* out) {
  if (lanes_suit(s)) return grouped_forward(s, x, w, bias, out);
  const ptrdiff_t out_step = static_cast<ptrdiff_t>(s.o * s.out_plane);
  for (size_t group = 0; group < s.groups; ++group) {
    GemmProblem p = {};
    p.m = s.og;
    p.n = s.out_plane;
    p.k = s.cg * s.taps;
    p.a.data = w + group * s.og * p.k;
    p.a.s_x = static_cast<ptrdiff_t>(p.k);
    p.a.s_k = 1;
    p.out = out + group * s.og * s.out_plane;
    p.ldc = static_cast<ptrdiff_t>(s.out_plane);
    if (bias != nullptr) {
      p.ep.active = true;
      p.ep.c = bias + group * s.og;
      p.ep.c_rows = 1;
    }
    const float* source = x + group * s.cg * s.in_plane;
    if (at_once(s, s.og, s.out_plane)) {
      if (!all_images(p, forward_phase(s.g, s.cg), s.n, s.g.oh, s.g.ow, source, s.g.h, s.g.w,
                      s.g.image_stride, p.out, out_step))
        return false;
      continue;
    }
    p.b = planes_of(s.g, source, s.in_plane, OperandKind::conv_forward);
    if (!TS_DISPATCH(gemm).gemm(p, s.n, s.g.image_stride, out_step)) return false;
  }
  return true;
}

bool convolution_input_grad(const ConvShape& s, const float* grad, const float* w, float* out) {
  const bool strided = s.g.sh > 1 || s.g.sw > 1;
  if (lanes_suit(s) && (!strided || all_finite(w, s.o * s.cg * s.taps)))
    return grouped_input_grad(s, grad, w, out);
  const ptrdiff_t grad_step = static_cast<ptrdiff_t>(s.o * s.out_plane);
  for (size_t group = 0; group < s.groups; ++group) {
    const float* weight = w + group * s.og * s.cg * s.taps;
    const float* source = grad + group * s.og * s.out_plane;
    float* to = out + group * s.cg * s.in_plane;
    if (strided) {
      if (!strided_input_grad({source, weight, to, s.n, s.og, s.cg, grad_step, s.g.image_stride,
                               s.g}))
        return false;
      continue;
    }
    GemmProblem p = {};
    p.m = s.cg;
    p.n = s.in_plane;
    p.k = s.og * s.taps;
    p.a.data = weight;
    p.a.s_x = static_cast<ptrdiff_t>(s.taps);
    if (s.taps == 1) {
      p.a.s_k = static_cast<ptrdiff_t>(s.cg);
    } else {
      p.a.s_k = 1;
      p.a.k_inner = s.taps;
      p.a.s_k_outer = static_cast<ptrdiff_t>(s.cg * s.taps);
    }
    p.out = to;
    p.ldc = static_cast<ptrdiff_t>(s.in_plane);
    if (p.k != 0 && at_once(s, s.cg, s.in_plane)) {
      if (!all_images(p, input_grad_phase(s.g, s.og, 0, 0), s.n, s.g.h, s.g.w, source, s.g.oh,
                      s.g.ow, grad_step, to, s.g.image_stride))
        return false;
      continue;
    }
    p.b = planes_of(s.g, source, s.out_plane, OperandKind::conv_input_grad);
    if (!TS_DISPATCH(gemm).gemm(p, s.n, grad_step, s.g.image_stride)) return false;
  }
  return true;
}

bool convolution_weight_grad(const ConvShape& s, const float* grad, const float* x, float* out) {
  if (lanes_suit(s)) return grouped_weight_grad(s, grad, x, out);
  for (size_t group = 0; group < s.groups; ++group) {
    GemmProblem p = {};
    p.m = s.og;
    p.n = s.cg * s.taps;
    p.k = s.n * s.out_plane;
    p.a.data = grad + group * s.og * s.out_plane;
    p.a.s_x = static_cast<ptrdiff_t>(s.out_plane);
    p.a.s_k = 1;
    p.a.k_inner = s.out_plane;
    p.a.s_k_outer = static_cast<ptrdiff_t>(s.o * s.out_plane);
    p.b.data = x + group * s.cg * s.in_plane;
    p.b.conv = s.g;
    if (pointwise(s.g)) {
      p.b.s_x = static_cast<ptrdiff_t>(s.in_plane);
      p.b.s_k = 1;
      p.b.k_inner = s.in_plane;
      p.b.s_k_outer = s.g.image_stride;
    } else {
      p.b.kind = OperandKind::conv_weight_grad;
    }
    p.out = out + group * s.og * p.n;
    p.ldc = static_cast<ptrdiff_t>(p.n);
    if (!TS_DISPATCH(gemm).gemm(p, 1, 0, 0)) return false;
  }
  return true;
}

}  // namespace tallystick
