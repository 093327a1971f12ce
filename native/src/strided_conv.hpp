// The input gradient of a strided convolution (NUMERICS 2.7).
#pragma once
#include "families/gemm.hpp"

namespace tallystick {

// One group of channels, all images. Tensors are C-contiguous but for the steps between images.
struct ConvInputGrad {
  const float* grad;          // of image 0: og planes of g.oh x g.ow
  const float* weight;        // [og, cg, kh, kw]
  float* out;                 // of image 0: cg planes of g.h x g.w
  size_t images, og, cg;
  ptrdiff_t grad_step;        // elements from one image to the next
  ptrdiff_t out_step;
  ConvGeometry g;
};

// For a stride above 1: without the terms that the stride makes zero. Returns false only if memory
// could not be had.
bool strided_input_grad(const ConvInputGrad& c);

// One element of the image whose gradient is `grad`, with every term of 2.7.
float input_grad_of_every_term(const ConvInputGrad& c, const float* grad, size_t channel, size_t h,
                               size_t w);

bool all_finite(const float* x, size_t n);

}  // namespace tallystick
