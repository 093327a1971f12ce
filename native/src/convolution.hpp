// 2-D convolutions and their gradients (NUMERICS 2.6, 2.7): each picks the way that suits its shape.
// Every way gives the same bits.
#pragma once
#include "conv_phases.hpp"

namespace tallystick {

// [n, c, h, w] and a bias of [o] or null to [n, o, oh, ow]. False only if memory could not be had,
// as below.
bool convolution_forward(const ConvShape& s, const float* x, const float* w, const float* bias,
                         float* out);
bool convolution_input_grad(const ConvShape& s, const float* grad, const float* w, float* out);
bool convolution_weight_grad(const ConvShape& s, const float* grad, const float* x, float* out);

}  // namespace tallystick
