// Batch normalisation and max pooling (NUMERICS 6.12 - 6.16). Kernels work on channels or planes;
// the caller cuts them among threads, which changes no bit (NUMERICS 1.8).
#pragma once
#include <cstddef>
#include <cstdint>

#include "dispatch.hpp"

namespace tallystick {

// x[batch, channels, inner]; a channel's elements are batch runs of `inner`, channels * inner apart.
struct BatchNormShape {
  size_t batch, channels, inner;
};

// Except for x and y, pointers are to one value per channel. weight, bias and the running
// statistics may be null; without running statistics there are no new ones.
struct BatchNormForward {
  BatchNormShape shape;
  const float *x, *weight, *bias, *running_mean, *running_var;
  float momentum;
  double eps;
  float *y, *mean, *rstd, *new_mean, *new_var;  // y may be x
};
struct BatchNormEval {
  BatchNormShape shape;
  const float *x, *weight, *bias, *mean, *var;
  float eps;
  float* y;  // may be x
};
struct BatchNormBackward {
  BatchNormShape shape;
  const float *grad, *x, *weight, *mean;
  const float* spread;  // rstd; where not `train`, the running variance
  bool train;
  float eps;           // read where not `train`
  float *dx, *dw, *db;  // unwanted ones are null; dx may be grad or x
};

struct PoolShape {
  size_t height, width, out_height, out_width;
  size_t kernel[2];
  ptrdiff_t stride[2], padding[2], dilation[2];
};

struct ImageTable {
  // Channels [begin, end). scratch: batch * inner floats, twice that for the backward.
  void (*batch_norm)(const BatchNormForward& p, size_t begin, size_t end, float* scratch);
  void (*batch_norm_eval)(const BatchNormEval& p, size_t begin, size_t end);
  void (*batch_norm_backward)(const BatchNormBackward& p, size_t begin, size_t end, float* scratch);
  // Planes [begin, end). Every output has a tap inside the plane.
  void (*max_pool)(const PoolShape& s, const float* x, float* y, int64_t* index, size_t begin,
                   size_t end);
  // Planes [begin, end) of `size` elements from `sources` gradients each; indices are in range.
  void (*max_pool_backward)(const float* grad, const int64_t* index, size_t sources, size_t size,
                            float* out, size_t begin, size_t end);
};

TS_DECLARE_TABLES(ImageTable, image)

}  // namespace tallystick
