// Convolutions and their gradients (NUMERICS 2.6, 2.7) as products whose operands are gathered: no
// patch is ever stored. A group is a product by itself.
//
// A column of results and a term are each an image or channel, a row y and a column x:
//
//                       rows       columns (plane, row)     terms (plane, row)
//   forward             o          (n, y, x) (oh*ow, ow)    (c, i, j) (kh*kw, kw)
//   input gradient      c          (n, y, x) (h*w, w)       (o, i, j) (kh*kw, kw)
//   weight gradient     o          (c, i, j) (kh*kw, kw)    (n, y, x) (oh*ow, ow)
#include "tiles.hpp"

namespace tallystick::TS_ISA {

struct Conv {
  const float *a, *b;     // weight and input; weight and gradient; gradient and input
  int64_t og, cg, groups; // channels of a group: of the output, of the input
  int64_t h, w, oh, ow, kh, kw;
  int64_t stride_y, stride_x, padding_y, padding_x, dilation_y, dilation_x;
  Divide col_plane, col_row, term_plane, term_row, by_stride_y, by_stride_x;
  int64_t first_group;    // of this launch
  int64_t out_group;      // elements from one group's results to the next
  int64_t terms;
  int64_t split, first_chunk;  // as in gemm.cu
  Results results;
};

// A column or term: its part of the place in the second operand, as a row and column of a plane, and
// as a number of elements, which counts them and the image or channel.
struct Spot { int64_t step; int y, x; };
struct Triple { int64_t a; int y, x; };

TS_INLINE Triple triple(const Divide& plane, const Divide& row, int64_t i) {
  const uint32_t at = static_cast<uint32_t>(i);
  const uint32_t a = quotient(plane, at), rest = at - a * static_cast<uint32_t>(plane.divisor);
  const uint32_t y = quotient(row, rest);
  return {static_cast<int64_t>(a), static_cast<int>(y),
          static_cast<int>(rest - y * static_cast<uint32_t>(row.divisor))};
}
TS_INLINE Triple triple_of_any(const Divide& plane, const Divide& row, int64_t i) {
  const int64_t a = quotient_of_any(i, plane.divisor), rest = i - a * plane.divisor;
  const int64_t y = quotient_of_any(rest, row.divisor);
  return {a, static_cast<int>(y), static_cast<int>(rest - y * row.divisor)};
}

TS_INLINE int whole(int64_t x) { return static_cast<int>(x); }  // sides are below 2^28
TS_INLINE Spot spot(int64_t begin, int y, int x, int64_t width) {
  return {begin + y * width + x, y, x};
}
TS_INLINE bool in_plane(int y, int x, int64_t height, int64_t width) {
  return static_cast<uint32_t>(y) < static_cast<uint32_t>(height) &&
         static_cast<uint32_t>(x) < static_cast<uint32_t>(width);
}
// The input under a kernel: a place of the output and a tap together.
TS_INLINE Spot place_spot(const Conv& p, Triple t) {
  return spot(t.a * p.groups * p.cg * p.h * p.w, t.y * whole(p.stride_y) - whole(p.padding_y),
              t.x * whole(p.stride_x) - whole(p.padding_x), p.w);
}
TS_INLINE Spot tap_spot(const Conv& p, Triple t) {
  return spot(t.a * p.h * p.w, t.y * whole(p.dilation_y), t.x * whole(p.dilation_x), p.w);
}

// Each pass: the spots of columns and terms; the address of an element of the second operand, and
// whether it is inside (else no address is read); places in the first operand.
struct Forward {
  TS_INLINE static const float* a_of(const Conv& p, int64_t g) {
    return p.a + g * p.og * p.cg * p.kh * p.kw;
  }
  TS_INLINE static const float* b_of(const Conv& p, int64_t g) { return p.b + g * p.cg * p.h * p.w; }
  TS_INLINE static Spot col(const Conv& p, Triple t) { return place_spot(p, t); }
  TS_INLINE static Spot term(const Conv& p, Triple t) { return tap_spot(p, t); }
  TS_INLINE static const float* find(const Conv& p, const float* b, Spot s, Spot t, bool& inside) {
    inside = in_plane(s.y + t.y, s.x + t.x, p.h, p.w);
    return b + s.step + t.step;
  }
  TS_INLINE static int64_t a_row(const Conv& p) { return p.cg * p.kh * p.kw; }
  // From the begin of a channel's (image's) terms to the next, beyond those terms.
  TS_INLINE static int64_t a_gap(const Conv&) { return 0; }
};
// With strides of 1.
struct InputGrad {
  TS_INLINE static const float* a_of(const Conv& p, int64_t g) { return Forward::a_of(p, g); }
  TS_INLINE static const float* b_of(const Conv& p, int64_t g) {
    return p.b + g * p.og * p.oh * p.ow;
  }
  TS_INLINE static Spot col(const Conv& p, Triple t) {
    return spot(t.a * p.groups * p.og * p.oh * p.ow, t.y + whole(p.padding_y),
                t.x + whole(p.padding_x), p.ow);
  }
  TS_INLINE static Spot term(const Conv& p, Triple t) {
    return spot(t.a * p.oh * p.ow, -t.y * whole(p.dilation_y), -t.x * whole(p.dilation_x), p.ow);
  }
  TS_INLINE static const float* find(const Conv& p, const float* b, Spot s, Spot t, bool& inside) {
    inside = in_plane(s.y + t.y, s.x + t.x, p.oh, p.ow);
    return b + s.step + t.step;
  }
  TS_INLINE static int64_t a_row(const Conv& p) { return p.kh * p.kw; }
  TS_INLINE static int64_t a_gap(const Conv& p) { return (p.cg - 1) * p.kh * p.kw; }
};
// With any strides: the gradient whose kernel has this tap on a place of the input, if there is one.
struct StridedInputGrad : InputGrad {
  TS_INLINE static Spot col(const Conv& p, Triple t) {
    return {t.a * p.groups * p.og * p.oh * p.ow, t.y + whole(p.padding_y), t.x + whole(p.padding_x)};
  }
  TS_INLINE static Spot term(const Conv& p, Triple t) {
    return {t.a * p.oh * p.ow, -t.y * whole(p.dilation_y), -t.x * whole(p.dilation_x)};
  }
  TS_INLINE static const float* find(const Conv& p, const float* b, Spot s, Spot t, bool& inside) {
    const int y = s.y + t.y, x = s.x + t.x;
    const int row = whole(quotient(p.by_stride_y, static_cast<uint32_t>(y < 0 ? 0 : y)));
    const int col = whole(quotient(p.by_stride_x, static_cast<uint32_t>(x < 0 ? 0 : x)));
    inside = row * whole(p.stride_y) == y && col * whole(p.stride_x) == x &&
             in_plane(row, col, p.oh, p.ow);
    return b + s.step + t.step + (row * p.ow + col);
  }
};
struct WeightGrad {
  TS_INLINE static const float* a_of(const Conv& p, int64_t g) {
    return p.a + g * p.og * p.oh * p.ow;
  }
  TS_INLINE static const float* b_of(const Conv& p, int64_t g) { return Forward::b_of(p, g); }
  TS_INLINE static Spot col(const Conv& p, Triple t) { return tap_spot(p, t); }
  TS_INLINE static Spot term(const Conv& p, Triple t) { return place_spot(p, t); }
  TS_INLINE static const float* find(const Conv& p, const float* b, Spot s, Spot t, bool& inside) {
    return Forward::find(p, b, s, t, inside);
  }
  TS_INLINE static int64_t a_row(const Conv& p) { return p.oh * p.ow; }
  TS_INLINE static int64_t a_gap(const Conv& p) { return (p.groups * p.og - 1) * p.oh * p.ow; }
};

// --- in tiles -------------------------------------------------------------------------------------
// Operands of LoadGathered (loads.hpp).
template <class Pass>
struct FirstOperand {
  using Element = const float*;
  const Conv& p;
  const float* at;
  static constexpr int64_t along_terms = 1;
  TS_INLINE Element element(int64_t x) const { return at + x * Pass::a_row(p); }
  TS_INLINE int64_t term(int64_t k) const {
    return k + quotient(p.term_plane, static_cast<uint32_t>(k)) * Pass::a_gap(p);
  }
  TS_INLINE const float* find(Element e, int64_t t, bool&) const { return e + t; }
};
template <class Pass>
struct SecondOperand {
  using Element = Spot;
  const Conv& p;
  const float* at;
  int64_t along_terms;
  TS_INLINE Spot element(int64_t x) const {
    return Pass::col(p, triple(p.col_plane, p.col_row, x));
  }
  TS_INLINE Spot term(int64_t k) const {
    return Pass::term(p, triple(p.term_plane, p.term_row, k));
  }
  TS_INLINE const float* find(const Spot& s, const Spot& t, bool& inside) const {
    return Pass::find(p, at, s, t, inside);
  }
};

template <class T, class Pass, bool TermsAdjacent>
TS_INLINE void conv_tile(const Conv& p, float* shared) {
  Results r = p.results;
  const int64_t group = p.first_group + block_z(), part = block_y();
  r.at += group * p.out_group + part * p.split;
  if (r.c != nullptr) r.c += group * p.og;
  const TileAt tile = tile_at<T>(r);
  const bool raw = p.split != 0;
  const int64_t k0 = raw ? (p.first_chunk + part) * kChunk : 0;
  const int64_t k1 = raw ? ts_min(k0 + kChunk, p.terms) : p.terms;
  const FirstOperand<Pass> a = {p, Pass::a_of(p, group)};
  const SecondOperand<Pass> b = {p, Pass::b_of(p, group), TermsAdjacent};
  LoadGathered<T, T::kRows, T::kRowStep, FirstOperand<Pass>> load_a(a, tile.row, r.rows, k0, k1);
  LoadGathered<T, T::kCols, T::kColStep, SecondOperand<Pass>> load_b(b, tile.col, r.cols, k0, k1);
  multiply_tile<T>(load_a, load_b, r, tile, k0, k1, shared, raw);
}

#define TS_CONV(name, blocks, ...)                                                          \
  using Tile##name = Tile<__VA_ARGS__>;                                                     \
  TS_CONV_KERNEL(name, blocks, forward, Forward, false)                                     \
  TS_CONV_KERNEL(name, blocks, input, InputGrad, false)                                     \
  TS_CONV_KERNEL(name, blocks, strided, StridedInputGrad, false)                            \
  TS_CONV_KERNEL(name, blocks, weight, WeightGrad, true)
#define TS_CONV_KERNEL(name, blocks, pass, Pass, along)                                     \
  TS_KERNEL_AT_ONCE(conv_##pass##_##name, Conv, Tile##name::kThreads, blocks) {             \
    TS_DYNAMIC_SHARED(float, shared);                                                       \
    conv_tile<Tile##name, Pass, along>(p, shared);                                          \
  }

// As in gemm.cu; the same table is in products/cuda/tiles.py.
TS_CONV(128x128r, 1, 128, 128, 8, 8, 16, false)
TS_CONV(32x64r, 4, 32, 64, 4, 8, 16, false)

// --- one result a thread --------------------------------------------------------------------------
// For groups of few channels, whose tiles would be almost empty, and for sizes of 2^31 and more.
template <class Pass>
TS_INLINE void conv_each(const Conv& p) {
  const Results& r = p.results;
  const int64_t part = block_y();
  const bool raw = p.split != 0;
  const int64_t k0 = raw ? (p.first_chunk + part) * kChunk : 0;
  const int64_t k1 = raw ? ts_min(k0 + kChunk, p.terms) : p.terms;
  const int64_t each = r.rows * r.cols, count = each * p.groups;
  const int height = static_cast<int>(p.term_plane.divisor / p.term_row.divisor);
  const int width = static_cast<int>(p.term_row.divisor);
  for (int64_t i = first_item(); i < count; i += item_step()) {
    const int64_t group = quotient_of_any(i, each), in_group = i - group * each;
    const int64_t row = quotient_of_any(in_group, r.cols), j = in_group - row * r.cols;
    const Triple place = triple_of_any(p.col_plane, p.col_row, j);
    const Spot col = Pass::col(p, place);
    const float* a = Pass::a_of(p, group) + row * Pass::a_row(p);
    const float* b = Pass::b_of(p, group);
    Triple t = triple_of_any(p.term_plane, p.term_row, k0);
    float total = 0.0f;
    for (int64_t begin = k0; begin < k1; begin += kChunk) {
      const int64_t end = ts_min(begin + kChunk, k1);
      float chain = 0.0f;
      for (int64_t k = begin; k < end; ++k) {
        bool inside = true;
        const float* at = Pass::find(p, b, col, Pass::term(p, t), inside);
        chain = fma1(a[k + t.a * Pass::a_gap(p)], inside ? *at : 0.0f, chain);
        if (++t.x == width) {
          t.x = 0;
          if (++t.y == height) {
            t.y = 0;
            ++t.a;
          }
        }
      }
      total = begin == k0 ? chain : total + chain;
    }
    // Images are the columns' first part, unless the results are a plain matrix.
    const int64_t in_plane = j - place.a * p.col_plane.divisor;
    const int64_t to = r.plane.divisor == 0 ? row * r.s_row + j
                                            : row * r.s_row + place.a * r.s_image + in_plane;
    float* out = r.at + group * p.out_group + part * p.split + to;
    *out = raw ? total
               : finished(r, total, r.c == nullptr ? nullptr : r.c + group * p.og + row);
  }
}
TS_KERNEL(conv_forward_each, Conv, 256) { conv_each<Forward>(p); }
TS_KERNEL(conv_input_each, Conv, 256) { conv_each<InputGrad>(p); }
TS_KERNEL(conv_strided_each, Conv, 256) { conv_each<StridedInputGrad>(p); }
TS_KERNEL(conv_weight_each, Conv, 256) { conv_each<WeightGrad>(p); }

}  // namespace tallystick::TS_ISA
