// Pointwise operators: a result element from one element of each operand (NUMERICS 5, 6.11, 10).
#include "device.hpp"

#include "tallystick/pointwise.hpp"

namespace tallystick {
namespace TS_ISA {

struct Point1 {
  Space space;
  Strides strides[1];
  const float* a;
  float* out;
  F32 p0, p1;
};
struct Point2 {
  Space space;
  Strides strides[2];
  const float *a, *b;
  void* out;
  F32 p0;
};

template <class Op>
TS_INLINE void point1(const Point1& p) {
  for (int64_t i = first_item(); i < p.space.count; i += item_step()) {
    const auto at = places<1>(p.space, p.strides, i);
    put1(p.out + i, Op::f(p.a[at.at[0]], p.p0.value, p.p1.value));
  }
}
TS_INLINE void put_result(void* out, int64_t i, float value) {
  put1(static_cast<float*>(out) + i, value);
}
TS_INLINE void put_result(void* out, int64_t i, bool value) {
  static_cast<uint8_t*>(out)[i] = value ? 1 : 0;
}
template <class Op>
TS_INLINE void point2(const Point2& p) {
  for (int64_t i = first_item(); i < p.space.count; i += item_step()) {
    const auto at = places<2>(p.space, p.strides, i);
    put_result(p.out, i, Op::f(p.a[at.at[0]], p.b[at.at[1]], p.p0.value));
  }
}

#define TS_POINT1(name) TS_KERNEL(pointwise_##name, Point1, 256) { point1<name##_op>(p); }
#define TS_POINT2(name) TS_KERNEL(pointwise_##name, Point2, 256) { point2<name##_op>(p); }

TS_POINT1(neg)
TS_POINT1(relu)
TS_POINT2(add)
TS_POINT2(add_alpha)
TS_POINT2(lt)

}  // namespace TS_ISA
}  // namespace tallystick
