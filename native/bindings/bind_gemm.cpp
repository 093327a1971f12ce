// Python's door to the dot class (NUMERICS 2). Shapes are checked here because kernels trust them.
// The sentences that a user sees come from the operator specs in numerics/operators/dot.py.
#include <algorithm>
#include <new>

#include "arrays.hpp"
#include "blocks.hpp"
#include "convolution.hpp"
#include "families/quantised.hpp"
#include "sequence.hpp"

namespace tallystick {
namespace {

using arrays::Pair;
using arrays::require;
template <size_t D>
using In = nb::ndarray<const float, nb::ndim<D>, nb::device::cpu>;
using InAny = nb::ndarray<const float, nb::device::cpu>;
template <size_t D>
using InC = nb::ndarray<const float, nb::ndim<D>, nb::c_contig, nb::device::cpu>;
template <size_t D>
using Out = nb::ndarray<float, nb::ndim<D>, nb::c_contig, nb::device::cpu>;

// Byte range an array's elements may lie in; [0, 0) if it has none.
template <class A>
std::pair<uintptr_t, uintptr_t> extent(const A& a) {
  intptr_t low = 0, high = 0;
  for (size_t d = 0; d < a.ndim(); ++d) {
    if (a.shape(d) == 0) return {0, 0};
    const intptr_t span = static_cast<intptr_t>(a.shape(d) - 1) * static_cast<intptr_t>(a.stride(d));
    (span < 0 ? low : high) += span;
  }
  const intptr_t base = reinterpret_cast<intptr_t>(a.data());
  const intptr_t size = static_cast<intptr_t>(a.itemsize());
  return {static_cast<uintptr_t>(base + low * size),
          static_cast<uintptr_t>(base + (high + 1) * size)};
}

template <class A, class B>
void require_apart(const A& out, const B& in) {
  const auto o = extent(out), i = extent(in);
  require(o.second <= i.first || i.second <= o.first, "the output overlaps an input");
}

template <class A>
GemmOperand strided(const A& a, size_t x_axis, size_t k_axis) {
  GemmOperand op = {};
  op.data = a.data();
  op.s_x = static_cast<ptrdiff_t>(a.stride(x_axis));
  op.s_k = static_cast<ptrdiff_t>(a.stride(k_axis));
  return op;
}

void done(bool ok) {
  if (!ok) throw std::bad_alloc();
}

// The product of the last two axes of a and b.
template <class In, class Out>
GemmProblem product(const In& a, const In& b, const Out& out, const char* misfit) {
  const size_t row = out.ndim() - 2, col = row + 1;
  require(a.shape(col) == b.shape(row) && out.shape(row) == a.shape(row) &&
              out.shape(col) == b.shape(col),
          misfit);
  require_apart(out, a);
  require_apart(out, b);
  GemmProblem p = {};
  p.m = a.shape(row);
  p.n = b.shape(col);
  p.k = a.shape(col);
  p.a = strided(a, row, col);
  p.b = strided(b, col, row);
  p.out = out.data();
  p.ldc = static_cast<ptrdiff_t>(p.n);
  return p;
}

void mm(In<2> a, In<2> b, Out<2> out) {
  const GemmProblem p = product(a, b, out, "mm: shapes of a, b and out do not fit");
  nb::gil_scoped_release unlocked;
  done(TS_DISPATCH(gemm).gemm(p, 1, 0, 0));
}

// A product whose B is described apart. The shapes are checked.
GemmProblem problem_without_b(const In<2>& a, const Out<2>& out) {
  GemmProblem p = {};
  p.m = a.shape(0);
  p.n = out.shape(1);
  p.k = a.shape(1);
  p.a = strided(a, 0, 1);
  p.out = out.data();
  p.ldc = static_cast<ptrdiff_t>(p.n);
  return p;
}

// The weights of a product as they are stored: their bits.
using Bits2 = nb::ndarray<const uint16_t, nb::ndim<2>, nb::device::cpu>;

StoredOperand stored(const Bits2& b, bool is_f16) {
  return {b.data(), static_cast<ptrdiff_t>(b.stride(1)), static_cast<ptrdiff_t>(b.stride(0)),
          is_f16 ? Stored::f16 : Stored::bf16};
}

GemmProblem product_stored(const In<2>& a, const Bits2& b, const Out<2>& out, const char* misfit) {
  require(a.shape(1) == b.shape(0) && out.shape(0) == a.shape(0) && out.shape(1) == b.shape(1),
          misfit);
  require_apart(out, a);
  require_apart(out, b);
  return problem_without_b(a, out);
}

void mm_stored(In<2> a, Bits2 b, Out<2> out, bool is_f16) {
  const GemmProblem p = product_stored(a, b, out, "mm: shapes of a, b and out do not fit");
  nb::gil_scoped_release unlocked;
  done(TS_DISPATCH(gemm).gemm_stored(p, stored(b, is_f16)));
}

// p = beta·c + alpha·(a b), c broadcast to [M,N] (NUMERICS 2.5).
void set_epilogue(GemmProblem& p, const InAny& c, double beta, double alpha) {
  require(c.ndim() <= 2, "addmm: c has more than two axes");
  ptrdiff_t step[2] = {0, 0};
  const size_t shape[2] = {p.m, p.n};
  for (size_t d = 0; d < c.ndim(); ++d) {
    const size_t axis = 2 - c.ndim() + d;
    require(c.shape(d) == 1 || c.shape(d) == shape[axis], "addmm: c does not broadcast to out");
    if (c.shape(d) != 1) step[axis] = static_cast<ptrdiff_t>(c.stride(d));
  }
  // NUMERICS 2.5: the tests are on the binary64 attributes, the factors are RN32.
  p.ep.scale_d = alpha != 1.0;
  p.ep.alpha = static_cast<float>(alpha);
  if (beta != 0.0) {
    p.ep.c = c.data();
    p.ep.c_rows = step[0];
    p.ep.c_cols = step[1];
    p.ep.scale_c = beta != 1.0;
    p.ep.beta = static_cast<float>(beta);
  }
  p.ep.active = p.ep.scale_d || p.ep.c != nullptr;
}

void addmm(InAny c, In<2> a, In<2> b, Out<2> out, double beta, double alpha) {
  GemmProblem p = product(a, b, out, "addmm: shapes of a, b and out do not fit");
  require_apart(out, c);
  set_epilogue(p, c, beta, alpha);
  nb::gil_scoped_release unlocked;
  done(TS_DISPATCH(gemm).gemm(p, 1, 0, 0));
}

void addmm_stored(InAny c, In<2> a, Bits2 b, Out<2> out, double beta, double alpha, bool is_f16) {
  GemmProblem p = product_stored(a, b, out, "addmm: shapes of a, b and out do not fit");
  require_apart(out, c);
  set_epilogue(p, c, beta, alpha);
  nb::gil_scoped_release unlocked;
  done(TS_DISPATCH(gemm).gemm_stored(p, stored(b, is_f16)));
}

// Weights in blocks, a row of them for each column of B (NUMERICS 19).
using Blocks2 = nb::ndarray<const uint8_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

GemmProblem product_quantised(const In<2>& a, const Blocks2& b, BlockFormat format,
                              const Out<2>& out, const char* misfit) {
  const BlockShape block = block_shape(format);
  require(b.shape(1) % block.size == 0 && a.shape(1) == b.shape(1) / block.size * block.elements &&
              out.shape(0) == a.shape(0) && out.shape(1) == b.shape(0),
          misfit);
  require_apart(out, a);
  require_apart(out, b);
  return problem_without_b(a, out);
}

void mm_quantised(const std::string& format, In<2> a, Blocks2 b, Out<2> out) {
  const BlockFormat kind = block_format(format);
  const GemmProblem p = product_quantised(a, b, kind, out, "mm: shapes of a, b and out do not fit");
  nb::gil_scoped_release unlocked;
  done(TS_DISPATCH(quantised).gemm(p, {b.data(), b.shape(1), kind}));
}

void addmm_quantised(const std::string& format, InAny c, In<2> a, Blocks2 b, Out<2> out,
                     double beta, double alpha) {
  const BlockFormat kind = block_format(format);
  GemmProblem p = product_quantised(a, b, kind, out, "addmm: shapes of a, b and out do not fit");
  require_apart(out, c);
  set_epilogue(p, c, beta, alpha);
  nb::gil_scoped_release unlocked;
  done(TS_DISPATCH(quantised).gemm(p, {b.data(), b.shape(1), kind}));
}

// Panels of B: [panels, K, kPanelCols] (tallystick/gemm_panels.hpp).
template <class T>
using Panels = nb::ndarray<const T, nb::ndim<3>, nb::c_contig, nb::device::cpu>;

// Moves bits, and fills a last panel that is not whole with zeros.
template <class T>
void make_panels_of(const nb::ndarray<const T, nb::ndim<2>, nb::device::cpu>& b,
                    const nb::ndarray<T, nb::ndim<3>, nb::c_contig, nb::device::cpu>& out) {
  constexpr size_t kTerms = 16;  // a cache line of a column
  const size_t terms = b.shape(0), columns = b.shape(1), count = out.shape(0);
  require(out.shape(1) == terms && out.shape(2) == kPanelCols &&
              count == (columns + kPanelCols - 1) / kPanelCols,
          "make_panels: the shape of out does not fit");
  require_apart(out, b);
  const T* src = b.data();
  T* dst = out.data();
  const ptrdiff_t s_k = static_cast<ptrdiff_t>(b.stride(0));
  const ptrdiff_t s_x = static_cast<ptrdiff_t>(b.stride(1));
  unlocked_ranges(count, 1, [=](size_t begin, size_t end) {
    for (size_t q = begin; q < end; ++q) {
      T* panel = dst + q * terms * kPanelCols;
      for (size_t k = 0; k < terms * kPanelCols && (q + 1) * kPanelCols > columns; ++k) panel[k] = 0;
      for (size_t k0 = 0; k0 < terms; k0 += kTerms) {
        for (size_t j = q * kPanelCols; j < std::min((q + 1) * kPanelCols, columns); ++j) {
          for (size_t k = k0; k < std::min(k0 + kTerms, terms); ++k)
            panel[k * kPanelCols + j % kPanelCols] =
                src[static_cast<ptrdiff_t>(j) * s_x + static_cast<ptrdiff_t>(k) * s_k];
        }
      }
    }
  });
}

void make_panels(In<2> b, nb::ndarray<float, nb::ndim<3>, nb::c_contig, nb::device::cpu> out) {
  make_panels_of<float>(b, out);
}

void make_panels_stored(Bits2 b,
                        nb::ndarray<uint16_t, nb::ndim<3>, nb::c_contig, nb::device::cpu> out) {
  make_panels_of<uint16_t>(b, out);
}

// Panels of blocks: [panels, blocks of a row, bytes of a block, kPanelCols].
template <class T>
using BlockPanels = nb::ndarray<T, nb::ndim<4>, nb::c_contig, nb::device::cpu>;

void make_panels_quantised(const std::string& format, Blocks2 rows, BlockPanels<uint8_t> out) {
  const size_t size = block_shape(block_format(format)).size;
  const size_t columns = rows.shape(0), bytes = rows.shape(1), count = out.shape(0);
  require(bytes == out.shape(1) * size && out.shape(2) == size && out.shape(3) == kPanelCols &&
              count == (columns + kPanelCols - 1) / kPanelCols,
          "make_panels: the shape of out does not fit");
  require_apart(out, rows);
  const uint8_t* src = rows.data();
  uint8_t* dst = out.data();
  unlocked_ranges(count, 1, [=](size_t begin, size_t end) {
    for (size_t q = begin; q < end; ++q) {
      uint8_t* panel = dst + q * bytes * kPanelCols;
      const size_t first = q * kPanelCols, here = std::min(columns - first, kPanelCols);
      for (size_t i = 0; i < bytes; ++i) {
        for (size_t j = 0; j < kPanelCols; ++j)
          panel[i * kPanelCols + j] = j < here ? src[(first + j) * bytes + i] : 0;
      }
    }
  });
}

template <class B>
GemmProblem product_panels(const In<2>& a, const B& b, size_t terms, const Out<2>& out,
                           const std::optional<InAny>& c) {
  require(out.shape(0) == a.shape(0) && terms == a.shape(1) &&
              b.shape(b.ndim() - 1) == kPanelCols &&
              b.shape(0) == (out.shape(1) + kPanelCols - 1) / kPanelCols,
          "mm_panels: shapes of a, b and out do not fit");
  require_apart(out, a);
  require_apart(out, b);
  GemmProblem p = problem_without_b(a, out);
  if (c) {
    require_apart(out, *c);
    set_epilogue(p, *c, 1.0, 1.0);
  }
  return p;
}

void mm_panels(In<2> a, Panels<float> b, Out<2> out, std::optional<InAny> c) {
  const GemmProblem p = product_panels(a, b, b.shape(1), out, c);
  const PanelOperand panels = {b.data(), nullptr, Stored::bf16, nullptr};
  perform([=] { done(TS_DISPATCH(gemm).gemm_panels(p, panels)); });
}

void mm_panels_stored(In<2> a, Panels<uint16_t> b, Out<2> out, std::optional<InAny> c,
                      bool is_f16) {
  const GemmProblem p = product_panels(a, b, b.shape(1), out, c);
  const PanelOperand panels = {nullptr, b.data(), is_f16 ? Stored::f16 : Stored::bf16,
                               nullptr};
  perform([=] { done(TS_DISPATCH(gemm).gemm_panels(p, panels)); });
}

void mm_panels_quantised(const std::string& format, In<2> a, BlockPanels<const uint8_t> b,
                         Out<2> out, std::optional<InAny> c) {
  const BlockFormat kind = block_format(format);
  const BlockShape block = block_shape(kind);
  const size_t terms = b.shape(2) == block.size ? b.shape(1) * block.elements : SIZE_MAX;
  const GemmProblem p = product_panels(a, b, terms, out, c);
  const QuantisedPanels panels = {b.data(), kind};
  perform([=] { done(TS_DISPATCH(quantised).gemm_panels(p, panels)); });
}

void bmm(In<3> a, In<3> b, Out<3> out) {
  constexpr const char* kMisfit = "bmm: shapes of a, b and out do not fit";
  require(a.shape(0) == b.shape(0) && out.shape(0) == a.shape(0), kMisfit);
  const GemmProblem p = product(a, b, out, kMisfit);
  nb::gil_scoped_release unlocked;
  done(TS_DISPATCH(gemm).bmm(p, a.shape(0), static_cast<ptrdiff_t>(a.stride(0)),
                             static_cast<ptrdiff_t>(b.stride(0)),
                             static_cast<ptrdiff_t>(p.m * p.n)));
}

// --- convolution ---------------------------------------------------------------------------------
// Shapes are [n, C, H, W], [O, C/g, kh, kw], [n, O, OH, OW]; refuses any that do not fit.
template <class X, class W, class Y>
ConvShape shape_of(const X& x, const W& w, const Y& y, Pair stride, Pair padding, Pair dilation,
                   int64_t groups) {
  // Bounds that keep every coordinate inside 32 bits and every index inside 64.
  constexpr int64_t kBig = int64_t(1) << 28;
  for (int d = 0; d < 2; ++d) {
    require(stride[d] >= 1 && stride[d] < kBig && dilation[d] >= 1 && dilation[d] < kBig &&
                padding[d] >= 0 && padding[d] < kBig,
            "convolution: stride and dilation must be at least 1 and padding at least 0");
  }
  require(groups >= 1 && x.shape(1) % static_cast<size_t>(groups) == 0 &&
              w.shape(0) % static_cast<size_t>(groups) == 0,
          "convolution: groups must divide the input and output channels");
  const ConvShape s = conv_shape(
      x.shape(0), x.shape(1), w.shape(0), static_cast<size_t>(groups),
      {x.shape(2), x.shape(3), y.shape(2), y.shape(3), w.shape(2), w.shape(3), stride[0], stride[1],
       padding[0], padding[1], dilation[0], dilation[1], 0});
  const ConvGeometry& g = s.g;
  require(w.shape(1) == s.cg, "convolution: weight does not fit the input channels");
  require(g.kh >= 1 && g.kw >= 1 && g.kh < size_t(kBig) && g.kw < size_t(kBig) &&
              g.h < size_t(kBig) && g.w < size_t(kBig),
          "convolution: bad kernel or input size");
  const auto size = [](size_t in, size_t k, ptrdiff_t st, ptrdiff_t pad, ptrdiff_t dil) {
    const ptrdiff_t room = static_cast<ptrdiff_t>(in) + 2 * pad - dil * (static_cast<ptrdiff_t>(k) - 1) - 1;
    return room < 0 ? ptrdiff_t(-1) : room / st + 1;
  };
  require(y.shape(0) == s.n && y.shape(1) == s.o &&
              static_cast<ptrdiff_t>(g.oh) == size(g.h, g.kh, g.sh, g.ph, g.dh) &&
              static_cast<ptrdiff_t>(g.ow) == size(g.w, g.kw, g.sw, g.pw, g.dw),
          "convolution: output shape does not fit");
  return s;
}

void convolution(InC<4> x, InC<4> w, std::optional<InC<1>> bias, Out<4> out, Pair stride,
                 Pair padding, Pair dilation, int64_t groups) {
  const ConvShape s = shape_of(x, w, out, stride, padding, dilation, groups);
  require(!bias || bias->shape(0) == s.o, "convolution: bias does not fit the output channels");
  require_apart(out, x);
  require_apart(out, w);
  if (bias) require_apart(out, *bias);
  const float* bias_data = bias ? bias->data() : nullptr;
  nb::gil_scoped_release unlocked;
  done(convolution_forward(s, x.data(), w.data(), bias_data, out.data()));
}

void input_grad(InC<4> grad, InC<4> w, Out<4> out, Pair stride, Pair padding,
                            Pair dilation, int64_t groups) {
  const ConvShape s = shape_of(out, w, grad, stride, padding, dilation, groups);
  require_apart(out, grad);
  require_apart(out, w);
  nb::gil_scoped_release unlocked;
  done(convolution_input_grad(s, grad.data(), w.data(), out.data()));
}

void weight_grad(InC<4> grad, InC<4> x, Out<4> out, Pair stride, Pair padding,
                             Pair dilation, int64_t groups) {
  const ConvShape s = shape_of(x, out, grad, stride, padding, dilation, groups);
  require_apart(out, grad);
  require_apart(out, x);
  nb::gil_scoped_release unlocked;
  done(convolution_weight_grad(s, grad.data(), x.data(), out.data()));
}

void bias_grad(InC<4> grad, Out<1> out) {
  require(out.shape(0) == grad.shape(1), "convolution: bias gradient does not fit the gradient");
  require_apart(out, grad);
  nb::gil_scoped_release unlocked;
  done(TS_DISPATCH(conv).bias_grad(grad.data(), grad.shape(0), grad.shape(1),
                                   grad.shape(2) * grad.shape(3), out.data()));
}

}  // namespace
}  // namespace tallystick

void bind_gemm(nb::module_& m) {
  using namespace tallystick;
  define(m, "mm", &mm, as_is("a"), as_is("b"), as_is("out"),
         "out[M,N] = a[M,K] b[K,N], f32, any strides of a and b (NUMERICS 2.4).");
  define(m, "addmm", &addmm, as_is("c"), as_is("a"), as_is("b"), as_is("out"), "beta"_a, "alpha"_a,
         "out = beta·c + alpha·(a b), c broadcast to [M,N] (NUMERICS 2.5).");
  define(m, "mm_stored", &mm_stored, as_is("a"), as_is("b"), as_is("out"), "is_f16"_a,
         "out = a b, b the bits of bf16 or f16 (NUMERICS 2.4, 10.7).");
  define(m, "addmm_stored", &addmm_stored, as_is("c"), as_is("a"), as_is("b"), as_is("out"),
         "beta"_a, "alpha"_a, "is_f16"_a,
         "out = beta·c + alpha·(a b), b the bits of bf16 or f16 (NUMERICS 2.5, 10.7).");
  define(m, "make_panels", &make_panels, as_is("b"), as_is("out"),
         "out[panels,K,32] = b[K,N], f32, 32 columns to a panel, zeros beyond the last.");
  define(m, "make_panels_stored", &make_panels_stored, as_is("b"), as_is("out"),
         "The same for the bits of bf16 or f16.");
  define(m, "mm_panels", &mm_panels, as_is("a"), as_is("b"), as_is("out"), as_is("c").none(),
         "out = a b, or a b + c; b as panels of 32 columns, zeros beyond the last (NUMERICS 2.4, "
         "2.5).");
  define(m, "mm_panels_stored", &mm_panels_stored, as_is("a"), as_is("b"), as_is("out"),
         as_is("c").none(), "is_f16"_a,
         "The same, b the bits of bf16 or f16 (NUMERICS 2.4, 2.5, 10.7).");
  define(m, "make_panels_quantised", &make_panels_quantised, "format"_a, as_is("rows"),
         as_is("out"),
         "out[panels,blocks,bytes,32]: rows of blocks, 32 rows to a panel, zeros beyond the last.");
  define(m, "mm_panels_quantised", &mm_panels_quantised, "format"_a, as_is("a"), as_is("b"),
         as_is("out"), as_is("c").none(),
         "out = a b, or a b + c; b as panels of blocks (NUMERICS 2.4, 2.5, 19).");
  define(m, "mm_quantised", &mm_quantised, "format"_a, as_is("a"), as_is("b"), as_is("out"),
         "out = a bᵀ, b rows of blocks (NUMERICS 2.4, 19).");
  define(m, "addmm_quantised", &addmm_quantised, "format"_a, as_is("c"), as_is("a"), as_is("b"),
         as_is("out"), "beta"_a, "alpha"_a,
         "out = beta·c + alpha·(a bᵀ), b rows of blocks (NUMERICS 2.5, 19).");
  define(m, "bmm", &bmm, as_is("a"), as_is("b"), as_is("out"),
         "out[i] = a[i] b[i] for each i (NUMERICS 2.4).");
  define(m, "convolution", &convolution, as_is("input"), as_is("weight"), as_is("bias").none(),
         as_is("out"), "stride"_a, "padding"_a, "dilation"_a, "groups"_a,
         "2-D convolution, C-contiguous f32 (NUMERICS 2.6).");
  define(m, "convolution_input_grad", &input_grad, as_is("grad"), as_is("weight"), as_is("out"),
         "stride"_a, "padding"_a, "dilation"_a, "groups"_a,
         "Gradient of a 2-D convolution's input (NUMERICS 2.7).");
  define(m, "convolution_weight_grad", &weight_grad, as_is("grad"), as_is("input"), as_is("out"),
         "stride"_a, "padding"_a, "dilation"_a, "groups"_a,
         "Gradient of a 2-D convolution's weight (NUMERICS 2.7).");
  define(m, "convolution_bias_grad", &bias_grad, as_is("grad"), as_is("out"),
         "Gradient of a 2-D convolution's bias (NUMERICS 2.7).");
}
