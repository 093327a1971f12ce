// Quantised weights (NUMERICS 19). A product has a strip of B's columns as binary32 at a time, in a
// cache: the whole of B never is. So its terms, and their order, are those of a product in binary32.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wunused-function"  // gemm_widen.hpp has more than is needed here
#endif

#include "families/quantised.hpp"

#include "tallystick/gemm_kernel.hpp"
#include "tallystick/gemm_scratch.hpp"
#include "tallystick/quantised_blocks.hpp"
#include "tallystick/quantised_panels.hpp"
#include "tallystick/ts_base.hpp"
#include "thread_pool.hpp"

namespace tallystick {

extern const GemmTable TS_TABLE(gemm);  // this instruction set's own

namespace TS_ISA {

// Floats of a strip: of a product of one row, which reads it once; of one of some rows; and of one
// of more rows than `kSomeRows`, which packs its A again for each strip.
constexpr size_t kOneRow = size_t(16) << 10, kSome = size_t(64) << 10, kMany = size_t(256) << 10;
constexpr size_t kSomeRows = 64;
// Below this many multiply-adds, waking another thread costs more than it saves.
constexpr double kSerialWork = 200e3;

static thread_local Scratch strip_scratch;

struct Strips {
  const GemmProblem* p;
  const QuantisedRows* b;
  size_t width;
  int failed;
};

static void strip_task(void* ctx, size_t t) {
  Strips& r = *static_cast<Strips*>(ctx);
  GemmProblem p = *r.p;
  const size_t j0 = t * r.width;
  p.n = ts_min(r.width, p.n - j0);
  float* strip = strip_scratch.get(p.n * p.k);
  if (strip == nullptr) {
    __atomic_store_n(&r.failed, 1, __ATOMIC_RELAXED);
    return;
  }
  const size_t blocks = p.n * p.k / block_shape(r.b->format).elements;
  dequantize_blocks(r.b->format, r.b->data + j0 * r.b->row_bytes, blocks, strip);
  p.b = {};
  p.b.data = strip;
  p.b.s_x = static_cast<ptrdiff_t>(p.k);
  p.b.s_k = 1;
  p.out += j0;
  if (p.ep.c != nullptr) p.ep.c += static_cast<ptrdiff_t>(j0) * p.ep.c_cols;
  if (!TS_TABLE(gemm).gemm(p, 1, 0, 0)) __atomic_store_n(&r.failed, 1, __ATOMIC_RELAXED);
}

static bool gemm_quantised(const GemmProblem& p, const QuantisedRows& b) {
  if (p.m == 0 || p.n == 0 || p.k == 0) return TS_TABLE(gemm).gemm(p, 1, 0, 0);
  const size_t floats = p.m == 1 ? kOneRow : p.m > kSomeRows ? kMany : kSome;
  Strips r = {&p, &b, ts_max(floats / p.k / kCols, size_t(1)) * kCols, 0};
  const double work = double(p.m) * double(p.n) * double(p.k);
  const size_t strips = ceil_div(p.n, r.width);
  for_tasks(strips, strip_task, &r, work < kSerialWork);
  return r.failed == 0;
}

// --- B as panels of blocks ----------------------------------------------------------------------
struct BlockPanels {
  const uint8_t* data;
  BlockShape shape;
  PanelKernels kernels;
  const uint8_t* panel(size_t j, size_t terms) const {
    return data + j * (terms / shape.elements * shape.size);
  }
};

static void panels_row(const void* panels, const float* a, ptrdiff_t a_step, size_t terms, size_t j,
                       size_t n, float* out) {
  const BlockPanels& b = *static_cast<const BlockPanels*>(panels);
  for (size_t i = 0; i < n; i += kPanelCols) {
    const uint8_t* panel = b.panel(j + i, terms);
    if (i + kPanelCols <= n) {
      b.kernels.row(a, a_step, panel, b.shape.size, terms, out + i);
      continue;
    }
    float last[kPanelCols];
    b.kernels.row(a, a_step, panel, b.shape.size, terms, last);
    for (size_t l = i; l < n; ++l) out[l] = last[l - i];
  }
}

static void panels_chunk(const void* panels, size_t terms, size_t j, size_t k, size_t kc,
                         float* out) {
  const BlockPanels& b = *static_cast<const BlockPanels*>(panels);
  b.kernels.chunk(b.panel(j, terms), b.shape.size, k, kc, out);
}

static bool gemm_quantised_panels(const GemmProblem& p, const QuantisedPanels& b) {
  const BlockPanels panels = {b.data, block_shape(b.format), panel_kernels(b.format)};
  const PanelForm form = {&panels, &panels_row, &panels_chunk};
  return TS_TABLE(gemm).gemm_panels(p, {nullptr, nullptr, Stored::bf16, &form});
}

static void dequantize(BlockFormat format, const uint8_t* src, size_t blocks, float* out) {
  dequantize_blocks(format, src, blocks, out);
  const size_t n = blocks * block_shape(format).elements;
  for (size_t i = 0; i < n; ++i) out[i] = planted(canonical_nan(out[i]));
}

}  // namespace TS_ISA

TS_DEFINE_TABLE(QuantisedTable, quantised) = {&TS_ISA::dequantize, &TS_ISA::gemm_quantised,
                                              &TS_ISA::gemm_quantised_panels};

}  // namespace tallystick
