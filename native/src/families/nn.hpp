// Normalisation, activation and losses (NUMERICS 6, 7). Kernels work on contiguous rows of n
// elements; the caller cuts rows or elements among threads, which changes no bit (NUMERICS 1.8).
#pragma once
#include <cstddef>
#include <cstdint>

#include "dispatch.hpp"

namespace tallystick {

// Per-row statistics of the losses, R rows of V logits.
struct CrossEntropyForward {
  const float* x;
  const int64_t* target;
  int64_t ignore_index;
  size_t vocabulary;
  float *loss, *row_max, *row_sum;
};
struct CrossEntropyBackward {
  const float* grad;  // R values if per_row, else one
  const float* x;
  const int64_t* target;
  const float *row_max, *row_sum;
  int64_t ignore_index;
  size_t vocabulary;
  bool per_row;
  float divisor;  // RN32(count) for `mean`; 0 when grad is not divided
  bool divide;
  float* out;  // may be x
};
struct LayerNormBackward {
  const float *grad, *x, *mean, *rstd, *weight;  // weight may be null
  size_t rows, n;
};

struct NnTable {
  // y may be x; out may be g or y.
  void (*softmax)(const float* x, float* y, size_t rows, size_t n);
  void (*log_softmax)(const float* x, float* y, size_t rows, size_t n);
  void (*softmax_backward)(const float* g, const float* y, float* out, size_t rows, size_t n);
  void (*log_softmax_backward)(const float* g, const float* y, float* out, size_t rows, size_t n);
  // w and b may be null; y may be x.
  void (*layer_norm)(const float* x, const float* w, const float* b, float eps, float* y,
                     float* mean, float* rstd, size_t rows, size_t n);
  // Rows [begin, end) of dx, which may be p.grad or p.x.
  void (*layer_norm_dx)(const LayerNormBackward& p, float* dx, size_t begin, size_t end);
  // Columns [begin, end) of dw and db, either of which may be null.
  // scratch: column_scratch(rows) floats.
  void (*layer_norm_dwb)(const LayerNormBackward& p, float* dw, float* db, size_t begin, size_t end,
                         float* scratch);
  size_t (*column_scratch)(size_t rows);
  size_t column_tile;  // columns that are summed at a time
  void (*cross_entropy)(const CrossEntropyForward& p, size_t begin, size_t end);
  void (*cross_entropy_backward)(const CrossEntropyBackward& p, size_t begin, size_t end);
  void (*nll)(const float* x, const int64_t* target, int64_t ignore_index, size_t vocabulary,
              float* loss, size_t rows);
  // Rows [begin, end) of -c at the target and +0 elsewhere; grad as in CrossEntropyBackward.
  void (*nll_backward)(const CrossEntropyBackward& p, size_t begin, size_t end);
  // SUM(x), divided by `divisor` if `divide`; canonical.
  float (*loss_sum)(const float* x, size_t n, bool divide, float divisor);
};

TS_DECLARE_TABLES(NnTable, nn)

}  // namespace tallystick
