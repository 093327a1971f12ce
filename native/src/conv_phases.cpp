#include "conv_phases.hpp"

#include "families/gemm.hpp"

namespace tallystick {
namespace {

void set_chunks(Phase& p, size_t channels, size_t taps) {
  const size_t kept = p.tap.size();
  if (kept == 0 || channels == 0) return;
  size_t chunk = 0;
  for (size_t c = 0; c < channels; ++c) {
    for (size_t t = 0; t < kept; ++t) {
      const size_t here = (c * taps + p.tap[t]) / kChunkTerms, at = c * kept + t;
      if (here != chunk && at != 0) p.chunk_ends.push_back(at);
      chunk = here;
    }
  }
  p.chunk_ends.push_back(channels * kept);
}

size_t places(size_t size, size_t first, size_t step) {
  return size <= first ? 0 : (size - first - 1) / step + 1;
}

}  // namespace

ConvPhase Phase::view() const {
  return {y0, x0, step_y, step_x, from_y, from_x, tap.size(), dy.data(), dx.data(), tap.data(),
          chunk_ends.data(), chunk_ends.size()};
}

size_t Phase::rows(size_t h) const { return places(h, y0, step_y); }
size_t Phase::cols(size_t w) const { return places(w, x0, step_x); }

Phase forward_phase(const ConvGeometry& g, size_t channels) {
  Phase p = {0, 0, 1, 1, g.sh, g.sw, {}, {}, {}, {}};
  for (size_t i = 0; i < g.kh; ++i) {
    for (size_t j = 0; j < g.kw; ++j) {
      p.tap.push_back(i * g.kw + j);
      p.dy.push_back(static_cast<ptrdiff_t>(i) * g.dh - g.ph);
      p.dx.push_back(static_cast<ptrdiff_t>(j) * g.dw - g.pw);
    }
  }
  set_chunks(p, channels, g.kh * g.kw);
  return p;
}

Phase input_grad_phase(const ConvGeometry& g, size_t channels, size_t py, size_t px) {
  Phase p = {py, px, static_cast<size_t>(g.sh), static_cast<size_t>(g.sw), 1, 1, {}, {}, {}, {}};
  for (size_t i = 0; i < g.kh; ++i) {
    const ptrdiff_t y = static_cast<ptrdiff_t>(py) + g.ph - static_cast<ptrdiff_t>(i) * g.dh;
    if (y % g.sh != 0) continue;
    for (size_t j = 0; j < g.kw; ++j) {
      const ptrdiff_t x = static_cast<ptrdiff_t>(px) + g.pw - static_cast<ptrdiff_t>(j) * g.dw;
      if (x % g.sw != 0) continue;
      p.tap.push_back(i * g.kw + j);
      p.dy.push_back(y / g.sh);
      p.dx.push_back(x / g.sw);
    }
  }
  set_chunks(p, channels, g.kh * g.kw);
  return p;
}

}  // namespace tallystick
