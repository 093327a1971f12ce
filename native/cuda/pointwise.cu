// The pointwise loops on binary32 (NUMERICS 6.7 to 6.11, 7.4, 8.5, 10).
#include "point.hpp"

#include "tallystick/pointwise.hpp"

namespace tallystick::TS_ISA {

#define TS_POINT_f1(name)                                                         \
  TS_KERNEL(pointwise_##name, Point<1>, 256) {                                    \
    each<float, float>(p, [&](int64_t, float a) {                                 \
      return name##_op::f(a, p.p0.value, p.p1.value);                             \
    });                                                                           \
  }
#define TS_POINT2(name, Out, Second, b)                                           \
  TS_KERNEL(pointwise_##name, Point<2>, 256) {                                    \
    each<Out, float, Second>(p, [&](int64_t, float x, Second y) {                 \
      return name##_op::f(x, b, p.p0.value);                                      \
    });                                                                           \
  }
#define TS_POINT_f2(name) TS_POINT2(name, float, float, y)
#define TS_POINT_c2(name) TS_POINT2(name, uint8_t, float, y)
#define TS_POINT_m2(name) TS_POINT2(name, float, uint8_t, y != 0)
#define TS_POINT_f3(name)                                                         \
  TS_KERNEL(pointwise_##name, Point<3>, 256) {                                    \
    each<float, float, float, float>(p, [&](int64_t, float a, float b, float c) { \
      return name##_op::f(a, b, c, p.p0.value);                                   \
    });                                                                           \
  }
#define TS_POINT(name, arity, kind, work) TS_POINT_##kind##arity(name)

TS_POINTWISE(TS_POINT)

}  // namespace tallystick::TS_ISA
