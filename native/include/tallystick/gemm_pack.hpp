// Packing: operands of any layout become panels dst[k*W + i]. Packing moves bits and fills unused
// columns (never contraction terms) with zeros, so it cannot change a result (NUMERICS 2.3).
#pragma once
#include "families/gemm.hpp"
#include "tallystick/short_copies.hpp"

namespace tallystick::TS_ISA {

// dst[r] = line[x + r] for r < n, zero where the index falls outside [0, width).
TS_INLINE void copy_clipped(float* dst, size_t n, const float* line, ptrdiff_t x,
                            ptrdiff_t width) {
  const ptrdiff_t count = static_cast<ptrdiff_t>(n);
  if (count == kCols && x >= 0 && x + kCols <= width) {  // most panels: no edge
    TS_UNROLL for (int v = 0; v < kVecs; ++v) gv_store(dst + v * kLanes, gv_load(line + x + v * kLanes));
    return;
  }
  const ptrdiff_t low = ts_min(ts_max(-x, ptrdiff_t(0)), count);
  const ptrdiff_t high = ts_max(ts_min(width - x, count), low);
  if (low != 0) zero_floats(dst, static_cast<size_t>(low));
  copy_floats(dst + low, line + x + low, static_cast<size_t>(high - low));
  if (high != count) zero_floats(dst + high, static_cast<size_t>(count - high));
}

// Columns adjacent in memory: whole rows are copied.
static void pack_rows(const float* src, ptrdiff_t s_k, size_t w, size_t W, size_t kc, float* dst) {
  if (w == W && W == static_cast<size_t>(kCols)) {
    for (size_t k = 0; k < kc; ++k, src += s_k, dst += kCols) {
      gv_prefetch(src + 8 * s_k);
      TS_UNROLL for (int v = 0; v < kVecs; ++v) gv_store(dst + v * kLanes, gv_load(src + v * kLanes));
    }
    return;
  }
  size_t k = 0;
  if (w == W && W < size_t(kLanes) && s_k >= kLanes) {
    // Whole vectors: a read beyond the row stays before the next row, and the next row overwrites a
    // write beyond it. The last rows have no successor.
    for (; k + 1 < kc && k * W + kLanes <= kc * W; ++k, src += s_k, dst += W)
      gv_store(dst, gv_load(src));
  }
  for (; k < kc; ++k, src += s_k, dst += W) {
    for (size_t i = 0; i < w; ++i) dst[i] = src[i];
    for (size_t i = w; i < W; ++i) dst[i] = 0.0f;
  }
}

// Several whole panels side by side: a row's stretch is long enough for the memory to read ahead.
constexpr size_t kTogether = 4;
static void pack_rows_together(const float* src, ptrdiff_t s_k, size_t kc, float* dst) {
  const size_t panel = kc * kCols;
  for (size_t k = 0; k < kc; ++k, src += s_k, dst += kCols) {
    TS_UNROLL for (size_t q = 0; q < kTogether; ++q) {
      TS_UNROLL for (int v = 0; v < kVecs; ++v)
          gv_store(dst + q * panel + v * kLanes, gv_load(src + q * kCols + v * kLanes));
    }
  }
}

// Contraction index adjacent in memory: blocks are transposed in registers. Columns beyond w repeat
// the last one; their results are never stored.
static void pack_columns(const float* src, ptrdiff_t s_x, size_t w, size_t W, size_t kc,
                         float* dst) {
  const size_t whole = kc / kLanes * kLanes;
  const bool rows_of_a = kPanelTranspose && w == W && W == size_t(kRows);
  for (size_t k = 0; rows_of_a && k < whole; k += kLanes)
    gv_transpose_panel(src + k, s_x, dst + k * W);
  for (size_t i0 = rows_of_a ? W : 0; i0 < W; i0 += kLanes) {
    ptrdiff_t row[kLanes];
    for (size_t i = 0; i < size_t(kLanes); ++i)
      row[i] = static_cast<ptrdiff_t>(ts_min(i0 + i, w - 1)) * s_x;
    const size_t room = ts_min(W - i0, size_t(kLanes));
    for (size_t k = 0; k < whole; k += kLanes) {
      float* d = dst + i0 + k * W;
      // In a panel narrower than a vector a store runs into the next row, which is written after
      // it; only the panel's last row has no successor.
      if (room == size_t(kLanes) || (W == room && (k + kLanes) * W + kLanes <= kc * W)) {
        gv_transpose(src + k, row, d, W);
      } else {
        float square[kLanes * kLanes];
        gv_transpose(src + k, row, square, kLanes);
        for (size_t j = 0; j < size_t(kLanes); ++j, d += W) {
          if (W == room && (k + j) * W + kLanes <= kc * W) {
            gv_store(d, gv_load(square + j * kLanes));
          } else {
            copy_floats(d, square + j * kLanes, room);
          }
        }
      }
    }
  }
  for (size_t k = whole; k < kc; ++k) {
    for (size_t i = 0; i < W; ++i)
      dst[k * W + i] =
          src[static_cast<ptrdiff_t>(ts_min(i, w - 1)) * s_x + static_cast<ptrdiff_t>(k)];
  }
}

static void pack_strided(const float* src, ptrdiff_t s_x, ptrdiff_t s_k, size_t w, size_t W,
                         size_t kc, float* dst) {
  if (s_x == 1) return pack_rows(src, s_k, w, W, kc, dst);
  if (s_k == 1) return pack_columns(src, s_x, w, W, kc, dst);
  for (size_t k = 0; k < kc; ++k, src += s_k, dst += W) {
    for (size_t i = 0; i < w; ++i) dst[i] = src[static_cast<ptrdiff_t>(i) * s_x];
    for (size_t i = w; i < W; ++i) dst[i] = 0.0f;
  }
}

// Walks (channel, kernel row, kernel column) in row-major order without dividing.
struct TapCounter {
  size_t channel;
  ptrdiff_t i, j, kh, kw;
  TS_INLINE TapCounter(const ConvGeometry& g, size_t k)
      : channel(k / (g.kh * g.kw)),
        i(static_cast<ptrdiff_t>(k % (g.kh * g.kw) / g.kw)),
        j(static_cast<ptrdiff_t>(k % g.kw)),
        kh(static_cast<ptrdiff_t>(g.kh)),
        kw(static_cast<ptrdiff_t>(g.kw)) {}
  TS_INLINE void next() {
    if (++j < kw) return;
    j = 0;
    if (++i < kh) return;
    i = 0;
    ++channel;
  }
};

// NUMERICS 2.6: row (c, i, j) of the panel holds, for each output (y, x), the padded input tap.
static void pack_conv_forward(const GemmOperand& op, size_t x0, size_t w, size_t W, size_t k0,
                              size_t kc, float* dst) {
  const ConvGeometry& g = op.conv;
  const size_t y0 = x0 / g.ow, first = x0 % g.ow;
  TapCounter at(g, k0);
  for (size_t k = 0; k < kc; ++k, dst += W, at.next()) {
    const ptrdiff_t di = at.i * g.dh - g.ph, dj = at.j * g.dw - g.pw;
    const float* plane = op.data + at.channel * g.h * g.w;
    size_t y = y0, x = first;
    for (size_t i = 0; i < w;) {
      const size_t run = ts_min(w - i, g.ow - x);
      const ptrdiff_t iy = static_cast<ptrdiff_t>(y) * g.sh + di;
      ptrdiff_t ix = static_cast<ptrdiff_t>(x) * g.sw + dj;
      if (iy < 0 || iy >= static_cast<ptrdiff_t>(g.h)) {
        zero_floats(dst + i, run);
      } else if (g.sw == 1) {
        copy_clipped(dst + i, run, plane + iy * static_cast<ptrdiff_t>(g.w), ix,
                     static_cast<ptrdiff_t>(g.w));
      } else {
        const float* line = plane + iy * static_cast<ptrdiff_t>(g.w);
        for (size_t r = 0; r < run; ++r, ix += g.sw)
          dst[i + r] = ix >= 0 && ix < static_cast<ptrdiff_t>(g.w) ? line[ix] : 0.0f;
      }
      i += run;
      x = 0;
      ++y;
    }
    for (size_t i = w; i < W; ++i) dst[i] = 0.0f;
  }
}

// NUMERICS 2.7: row (o, i, j) holds, for each input (h, w), the output gradient that used it.
static void pack_conv_input_grad(const GemmOperand& op, size_t x0, size_t w, size_t W, size_t k0,
                                 size_t kc, float* dst) {
  const ConvGeometry& g = op.conv;
  const size_t y0 = x0 / g.w, first = x0 % g.w;
  TapCounter at(g, k0);
  for (size_t k = 0; k < kc; ++k, dst += W, at.next()) {
    const ptrdiff_t di = g.ph - at.i * g.dh, dj = g.pw - at.j * g.dw;
    const float* plane = op.data + at.channel * g.oh * g.ow;
    size_t y = y0, x = first;
    for (size_t i = 0; i < w;) {
      const size_t run = ts_min(w - i, g.w - x);
      const ptrdiff_t ty = static_cast<ptrdiff_t>(y) + di;
      // 32 bits are enough (sizes are below 2^31) and divide in half the time.
      const ptrdiff_t oy = g.sh == 1 ? ty : static_cast<int32_t>(ty) / static_cast<int32_t>(g.sh);
      const float* line = plane + oy * static_cast<ptrdiff_t>(g.ow);
      const ptrdiff_t tx = static_cast<ptrdiff_t>(x) + dj;
      if (ty < 0 || oy * g.sh != ty || oy >= static_cast<ptrdiff_t>(g.oh)) {
        zero_floats(dst + i, run);
      } else if (g.sw == 1) {
        copy_clipped(dst + i, run, line, tx, static_cast<ptrdiff_t>(g.ow));
      } else {
        zero_floats(dst + i, run);
        // The first column at or after x whose tap falls on an output, then every sw-th.
        const int32_t step = static_cast<int32_t>(g.sw);
        ptrdiff_t ox = tx <= 0 ? 0 : (static_cast<int32_t>(tx) - 1) / step + 1;
        for (ptrdiff_t r = ox * g.sw - tx;
             r < static_cast<ptrdiff_t>(run) && ox < static_cast<ptrdiff_t>(g.ow); r += g.sw, ++ox)
          dst[i + static_cast<size_t>(r)] = line[ox];
      }
      i += run;
      x = 0;
      ++y;
    }
    for (size_t i = w; i < W; ++i) dst[i] = 0.0f;
  }
}

// Row (channel, tap) holds, for each (image, y, x) of the grid, the value that the tap has there.
static void pack_conv_taps(const GemmOperand& op, size_t x0, size_t w, size_t W, size_t k0,
                           size_t kc, float* dst) {
  const ConvTaps& t = *op.taps;
  const ptrdiff_t width = static_cast<ptrdiff_t>(t.w);
  const size_t grid = t.rows * t.cols;
  size_t channel = k0 / t.count, tap = k0 % t.count;
  for (size_t k = 0; k < kc; ++k, dst += W) {
    size_t image = x0 / grid, y = x0 % grid / t.cols, x = x0 % t.cols;
    for (size_t i = 0; i < w;) {
      const size_t run = ts_min(w - i, t.cols - x);
      const ptrdiff_t sy = static_cast<ptrdiff_t>(y) * t.from_y + t.dy[tap];
      ptrdiff_t sx = static_cast<ptrdiff_t>(x) * t.from_x + t.dx[tap];
      if (sy < 0 || sy >= static_cast<ptrdiff_t>(t.h)) {
        zero_floats(dst + i, run);
      } else {
        const float* line = op.data + static_cast<ptrdiff_t>(image) * t.image_stride +
                            static_cast<ptrdiff_t>(channel * t.h * t.w) + sy * width;
        if (t.from_x == 1) {
          copy_clipped(dst + i, run, line, sx, width);
        } else {
          for (size_t r = 0; r < run; ++r, sx += t.from_x)
            dst[i + r] = sx >= 0 && sx < width ? line[sx] : 0.0f;
        }
      }
      i += run;
      x = 0;
      if (++y == t.rows) {
        y = 0;
        ++image;
      }
    }
    for (size_t i = w; i < W; ++i) dst[i] = 0.0f;
    if (++tap == t.count) {
      tap = 0;
      ++channel;
    }
  }
}

// NUMERICS 2.7: row (n, y, x) holds, for each weight (c, i, j), the padded input tap.
// One column after the other.
static void weight_grad_columns(const GemmOperand& op, size_t x0, size_t w, size_t W, size_t k0,
                                size_t kc, float* dst) {
  const ConvGeometry& g = op.conv;
  const size_t taps = g.kh * g.kw, plane_out = g.oh * g.ow;
  for (size_t i = 0; i < W; ++i) {
    float* d = dst + i;
    if (i >= w) {
      for (size_t k = 0; k < kc; ++k) d[k * W] = 0.0f;
      continue;
    }
    const size_t c = (x0 + i) / taps, tap = (x0 + i) % taps;
    const ptrdiff_t di = static_cast<ptrdiff_t>(tap / g.kw) * g.dh - g.ph;
    const ptrdiff_t dj = static_cast<ptrdiff_t>(tap % g.kw) * g.dw - g.pw;
    size_t n = k0 / plane_out, y = k0 % plane_out / g.ow, x = k0 % g.ow;
    for (size_t k = 0; k < kc;) {
      const size_t run = ts_min(kc - k, g.ow - x);
      const ptrdiff_t iy = static_cast<ptrdiff_t>(y) * g.sh + di;
      ptrdiff_t ix = static_cast<ptrdiff_t>(x) * g.sw + dj;
      if (iy < 0 || iy >= static_cast<ptrdiff_t>(g.h)) {
        for (size_t r = 0; r < run; ++r) d[(k + r) * W] = 0.0f;
      } else {
        const float* line = op.data + static_cast<ptrdiff_t>(n) * g.image_stride +
                            static_cast<ptrdiff_t>(c * g.h * g.w) +
                            iy * static_cast<ptrdiff_t>(g.w);
        for (size_t r = 0; r < run; ++r, ix += g.sw)
          d[(k + r) * W] = ix >= 0 && ix < static_cast<ptrdiff_t>(g.w) ? line[ix] : 0.0f;
      }
      k += run;
      x = 0;
      if (++y == g.oh) {
        y = 0;
        ++n;
      }
    }
  }
}

// The same for unit steps along a row: squares of kLanes columns and rows, transposed in registers.
// Columns beyond w repeat the last one; their results are never stored. kc is whole squares.
static void weight_grad_squares(const GemmOperand& op, size_t x0, size_t w, size_t W, size_t k0,
                                size_t kc, float* dst) {
  const ConvGeometry& g = op.conv;
  const size_t taps = g.kh * g.kw, plane_out = g.oh * g.ow;
  const ptrdiff_t height = static_cast<ptrdiff_t>(g.h), width = static_cast<ptrdiff_t>(g.w);
  constexpr ptrdiff_t kLong = kLanes;
  ptrdiff_t own[kLanes];
  for (ptrdiff_t l = 0; l < kLong; ++l) own[l] = l * kLong;
  for (size_t i0 = 0; i0 < W; i0 += kLanes) {
    ptrdiff_t row[kLanes], plane[kLanes], di[kLanes], dj[kLanes];
    for (size_t l = 0; l < size_t(kLanes); ++l) {
      const size_t column = x0 + ts_min(i0 + l, w - 1), tap = column % taps;
      plane[l] = static_cast<ptrdiff_t>(column / taps) * height * width;
      di[l] = static_cast<ptrdiff_t>(tap / g.kw) * g.dh - g.ph;
      dj[l] = static_cast<ptrdiff_t>(tap % g.kw) * g.dw - g.pw;
      row[l] = plane[l] + di[l] * width + dj[l];
    }
    ptrdiff_t up = di[0], down = di[0], left = dj[0], right = dj[0];
    for (size_t l = 1; l < size_t(kLanes); ++l) {
      up = ts_min(up, di[l]);
      down = ts_max(down, di[l]);
      left = ts_min(left, dj[l]);
      right = ts_max(right, dj[l]);
    }
    size_t n = k0 / plane_out, y = k0 % plane_out / g.ow, x = k0 % g.ow;
    float* d = dst + i0;
    for (size_t k = 0; k < kc; k += kLanes, d += kLanes * W) {
      const ptrdiff_t iy = static_cast<ptrdiff_t>(y) * g.sh, ix = static_cast<ptrdiff_t>(x);
      if (x + kLanes <= g.ow && iy + up >= 0 && iy + down < height && ix + left >= 0 &&
          ix + right + kLong <= width) {
        gv_transpose(op.data + static_cast<ptrdiff_t>(n) * g.image_stride + iy * width + ix, row,
                     d, W);
        x += kLanes;
      } else {  // an edge: each column's stretch, with zeros outside, first into a square
        float square[kLanes * kLanes];
        for (size_t at = 0; at < size_t(kLanes);) {
          const size_t run = ts_min(size_t(kLanes) - at, g.ow - x);
          const float* image = op.data + static_cast<ptrdiff_t>(n) * g.image_stride;
          for (size_t l = 0; l < size_t(kLanes); ++l) {
            const ptrdiff_t ty = static_cast<ptrdiff_t>(y) * g.sh + di[l];
            float* to = square + l * kLanes + at;
            if (ty < 0 || ty >= height) {
              zero_floats(to, run);
            } else {
              copy_clipped(to, run, image + plane[l] + ty * width,
                           static_cast<ptrdiff_t>(x) + dj[l], width);
            }
          }
          at += run;
          x += run;
          if (x == g.ow && at < size_t(kLanes)) {
            x = 0;
            if (++y == g.oh) {
              y = 0;
              ++n;
            }
          }
        }
        gv_transpose(square, own, d, W);
      }
      if (x == g.ow) {
        x = 0;
        if (++y == g.oh) {
          y = 0;
          ++n;
        }
      }
    }
  }
}

static void pack_conv_weight_grad(const GemmOperand& op, size_t x0, size_t w, size_t W, size_t k0,
                                  size_t kc, float* dst) {
  // Shorter rows make a square of many pieces.
  constexpr size_t kShortest = 8;
  const bool squares = kLanes > 1 && W % kLanes == 0 && op.conv.sw == 1 && op.conv.ow >= kShortest;
  const size_t whole = squares ? kc / kLanes * kLanes : 0;
  if (whole != 0) weight_grad_squares(op, x0, w, W, k0, whole, dst);
  if (whole != kc) weight_grad_columns(op, x0, w, W, k0 + whole, kc - whole, dst + whole * W);
}

// Packs elements (x0 .. x0+w, k0 .. k0+kc) of an operand into a panel of width W >= w.
static void pack_panel(const GemmOperand& op, size_t x0, size_t w, size_t W, size_t k0, size_t kc,
                       float* dst) {
  switch (op.kind) {
    case OperandKind::conv_forward:
      return pack_conv_forward(op, x0, w, W, k0, kc, dst);
    case OperandKind::conv_input_grad:
      return pack_conv_input_grad(op, x0, w, W, k0, kc, dst);
    case OperandKind::conv_weight_grad:
      return pack_conv_weight_grad(op, x0, w, W, k0, kc, dst);
    case OperandKind::conv_taps:
      return pack_conv_taps(op, x0, w, W, k0, kc, dst);
    case OperandKind::strided:
      break;
  }
  const float* base = op.data + static_cast<ptrdiff_t>(x0) * op.s_x;
  if (op.k_inner == 0) {
    pack_strided(base + static_cast<ptrdiff_t>(k0) * op.s_k, op.s_x, op.s_k, w, W, kc, dst);
    return;
  }
  for (size_t k = 0; k < kc;) {
    const size_t outer = (k0 + k) / op.k_inner, inner = (k0 + k) % op.k_inner;
    const size_t run = ts_min(kc - k, op.k_inner - inner);
    pack_strided(base + static_cast<ptrdiff_t>(outer) * op.s_k_outer +
                     static_cast<ptrdiff_t>(inner) * op.s_k,
                 op.s_x, op.s_k, w, W, run, dst + k * W);
    k += run;
  }
}

}  // namespace tallystick::TS_ISA
