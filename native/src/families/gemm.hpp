// The dot class (NUMERICS 2): matrix products and convolutions over one blocked driver.
// Plain structs only: this header is shared by translation units of different instruction sets.
#pragma once
#include <cstddef>
#include <cstdint>

#include "../dispatch.hpp"

namespace tallystick {

constexpr size_t kChunkTerms = 128;  // NUMERICS 2.1

// Geometry of a 2-D convolution, one group of one image (NUMERICS 2.6, 2.7).
struct ConvGeometry {
  size_t h, w;              // input plane
  size_t oh, ow;            // output plane
  size_t kh, kw;            // kernel
  ptrdiff_t sh, sw;         // stride
  ptrdiff_t ph, pw;         // padding
  ptrdiff_t dh, dw;         // dilation
  ptrdiff_t image_stride;   // elements from one image of `data` to the next (weight gradient)
};

// The terms of results in all images: row (channel, tap), column (image, y, x): the source's value at
// (y * from_y + dy[tap], x * from_x + dx[tap]), +0 outside.
struct ConvTaps {
  size_t count;             // taps of a channel
  const ptrdiff_t *dy, *dx;
  ptrdiff_t from_y, from_x;
  size_t rows, cols;        // of the grid (y, x)
  size_t h, w;              // of the source
  ptrdiff_t image_stride;   // elements from one image of the source to the next
};

enum class OperandKind : int {
  strided = 0,
  conv_forward = 1,       // row (c, i, j), column (y, x): padded input tap
  conv_input_grad = 2,    // row (o, i, j), column (h, w): output gradient that used the tap
  conv_weight_grad = 3,   // row (n, y, x), column (c, i, j): padded input tap
  conv_taps = 4,          // ConvTaps
};

// One side of a product: element (x, k), x the row of A or the column of B, strides in elements.
// A strided operand may have a two-level contraction index: k = outer * k_inner + inner.
struct GemmOperand {
  const float* data;
  ptrdiff_t s_x;
  ptrdiff_t s_k;
  size_t k_inner;           // 0: one level
  ptrdiff_t s_k_outer;
  OperandKind kind;
  ConvGeometry conv;
  const ConvTaps* taps;     // of conv_taps
};

// What weights may be stored in (NUMERICS 1.14).
enum class Stored : int { bf16 = 0, f16 = 1 };

// B as it is stored, in 16 bits an element: element (x, k) as of a strided GemmOperand.
struct StoredOperand {
  const uint16_t* data;
  ptrdiff_t s_x;
  ptrdiff_t s_k;
  Stored type;
};

// Columns of a panel (tallystick/gemm_panels.hpp).
constexpr size_t kPanelCols = 32;

// Panels in a form that another family knows (families/quantised.cpp).
struct PanelForm {
  const void* panels;
  // Columns j to j + n of one row of A times B, `terms` long; j begins a panel.
  void (*row)(const void* panels, const float* a, ptrdiff_t a_step, size_t terms, size_t j,
              size_t n, float* out);
  // Terms k to k + kc of the panel at column j: kc rows of kPanelCols numbers.
  void (*chunk)(const void* panels, size_t terms, size_t j, size_t k, size_t kc, float* out);
};

// B as panels, in binary32, in 16 bits an element or in another form: one of the three is there.
struct PanelOperand {
  const float* wide;
  const uint16_t* stored;
  Stored type;
  const PanelForm* form;
};

// out = alpha·d + beta·c with the roundings of NUMERICS 2.5. Factors that are exactly 1 multiply
// nothing; c == nullptr adds nothing.
struct GemmEpilogue {
  bool active;
  bool scale_d, scale_c;
  float alpha, beta;
  const float* c;
  ptrdiff_t c_rows, c_cols;
};

struct GemmProblem {
  size_t m, n, k;
  GemmOperand a, b;         // a.s_x: rows of A; b.s_x: columns of B
  float* out;
  ptrdiff_t ldc;            // elements between rows of out; columns are adjacent
  GemmEpilogue ep;
  // Where each chunk ends, if terms are left out of the chunks of NUMERICS 2.1; else null.
  const size_t* chunk_ends;
  size_t chunk_count;
};

struct GemmTable {
  // `count` products that share A; b.data and out advance by b_step and out_step elements.
  // Returns false only if scratch memory could not be had.
  bool (*gemm)(const GemmProblem& p, size_t count, ptrdiff_t b_step, ptrdiff_t out_step);
  // `count` independent products.
  bool (*bmm)(const GemmProblem& p, size_t count, ptrdiff_t a_step, ptrdiff_t b_step,
              ptrdiff_t out_step);
  // One product whose B is `b`; p.b is not read. B is widened in strips that stay in a cache.
  bool (*gemm_stored)(const GemmProblem& p, const StoredOperand& b);
  // One product whose B is `b`; p.b is not read.
  bool (*gemm_panels)(const GemmProblem& p, const PanelOperand& b);
};

TS_DECLARE_TABLES(GemmTable, gemm)

}  // namespace tallystick
