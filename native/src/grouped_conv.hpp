// Convolutions of many small groups of channels, a vector's lanes for the groups (families/conv.cpp).
#pragma once
#include "conv_phases.hpp"

namespace tallystick {

// Whether these shapes gain from it. The bits are the same either way.
bool lanes_suit(const ConvShape& s);

// NUMERICS 2.6, 2.7, all groups and images. False only if memory could not be had. The weight of an
// input gradient is finite if the stride is above 1.
bool grouped_forward(const ConvShape& s, const float* x, const float* w, const float* bias,
                     float* out);
bool grouped_input_grad(const ConvShape& s, const float* grad, const float* w, float* out);
bool grouped_weight_grad(const ConvShape& s, const float* grad, const float* x, float* out);

}  // namespace tallystick
