// Pointwise operators on binary32 (NUMERICS 6.7 to 6.11, 7.4, 8.5, 10).
#include "point.hpp"

#include "tallystick/pointwise.hpp"

namespace tallystick {
namespace TS_ISA {

#define TS_POINT1(name)                                                           \
  TS_KERNEL(pointwise_##name, Point<1>, 256) {                                    \
    each<float, float>(p, [&](int64_t, float a) {                                 \
      return name##_op::f(a, p.p0.value, p.p1.value);                             \
    });                                                                           \
  }
#define TS_POINT2(name, Out)                                                      \
  TS_KERNEL(pointwise_##name, Point<2>, 256) {                                    \
    each<Out, float, float>(p, [&](int64_t, float a, float b) {                   \
      return name##_op::f(a, b, p.p0.value);                                      \
    });                                                                           \
  }
#define TS_POINT3(name)                                                           \
  TS_KERNEL(pointwise_##name, Point<3>, 256) {                                    \
    each<float, float, float, float>(p, [&](int64_t, float a, float b, float c) { \
      return name##_op::f(a, b, c, p.p0.value);                                   \
    });                                                                           \
  }

TS_POINT1(neg)
TS_POINT1(abs)
TS_POINT1(reciprocal)
TS_POINT1(sqrt)
TS_POINT1(square)
TS_POINT1(cube)
TS_POINT1(relu)
TS_POINT1(silu)
TS_POINT1(leaky_relu)
TS_POINT1(clamp_min)
TS_POINT1(clamp_max)
TS_POINT1(clamp)
TS_POINT1(gelu_erf)
TS_POINT1(gelu_tanh)

TS_POINT2(add, float)
TS_POINT2(sub, float)
TS_POINT2(mul, float)
TS_POINT2(div, float)
TS_POINT2(add_alpha, float)
TS_POINT2(sub_alpha, float)
TS_POINT2(maximum, float)
TS_POINT2(minimum, float)
TS_POINT2(threshold_backward, float)
TS_POINT2(silu_backward, float)
TS_POINT2(tanh_backward, float)
TS_POINT2(sigmoid_backward, float)
TS_POINT2(gelu_erf_backward, float)
TS_POINT2(gelu_tanh_backward, float)
TS_POINT2(squared_difference, float)
TS_POINT2(eq, uint8_t)
TS_POINT2(ne, uint8_t)
TS_POINT2(lt, uint8_t)
TS_POINT2(le, uint8_t)
TS_POINT2(gt, uint8_t)
TS_POINT2(ge, uint8_t)

TS_POINT3(mse_backward)
TS_POINT3(mse_backward_mean)

TS_KERNEL(pointwise_mask_scale, Point<2>, 256) {
  each<float, float, uint8_t>(p, [&](int64_t, float a, uint8_t kept) {
    return mask_scale(a, kept != 0, p.p0.value);
  });
}

}  // namespace TS_ISA
}  // namespace tallystick
