// Which terms the results of a convolution have (NUMERICS 2.6, 2.7), and in which chunks.
#pragma once
#include <cstddef>
#include <vector>

#include "families/conv.hpp"

namespace tallystick {

// A convolution of [n, c, h, w] by [o, c/groups, kh, kw].
struct ConvShape {
  size_t n, c, o, groups, taps;
  size_t cg, og;              // channels within a group
  size_t in_plane, out_plane;
  ConvGeometry g;
};
// From what does not follow from the rest.
inline ConvShape conv_shape(size_t n, size_t c, size_t o, size_t groups, ConvGeometry g) {
  g.image_stride = static_cast<ptrdiff_t>(c * g.h * g.w);
  return {n, c, o, groups, g.kh * g.kw, c / groups, o / groups, g.h * g.w, g.oh * g.ow, g};
}

// Results at every step-th row and column from (y0, x0). Their taps, row-major: places in the
// kernel, and where the first result's terms lie in the source.
struct Phase {
  size_t y0, x0, step_y, step_x;
  ptrdiff_t from_y, from_x;
  std::vector<size_t> tap;
  std::vector<ptrdiff_t> dy, dx;
  std::vector<size_t> chunk_ends;  // over (source channel, tap)

  ConvPhase view() const;
  // How many rows (columns) of the phase's results a plane of h rows (w columns) has.
  size_t rows(size_t h) const;
  size_t cols(size_t w) const;
};

Phase forward_phase(const ConvGeometry& g, size_t channels);
// Of the inputs (py, px), (py + stride, px), ...: without the terms that the stride makes zero. The
// chunks stay those of the whole sum over `channels` of the gradient.
Phase input_grad_phase(const ConvGeometry& g, size_t channels, size_t py, size_t px);

}  // namespace tallystick
