// Conversions, and choices between elements (NUMERICS 9, 10.7).
#include "point.hpp"

namespace tallystick {
namespace TS_ISA {

#define TS_CONVERT(name, From, To, value)                            \
  TS_KERNEL(convert_##name, Point<1>, 256) {                         \
    each<To, From>(p, [](int64_t, From x) -> To { return value; });  \
  }
TS_CONVERT(i64_f32, int64_t, float, static_cast<float>(x))
TS_CONVERT(bool_f32, uint8_t, float, x != 0 ? 1.0f : 0.0f)
TS_CONVERT(bool_i64, uint8_t, int64_t, x != 0)
TS_CONVERT(f32_bool, float, uint8_t, x != 0.0f)
TS_CONVERT(i64_bool, int64_t, uint8_t, x != 0)
TS_CONVERT(i32_i64, int32_t, int64_t, x)
TS_CONVERT(u8_i64, uint8_t, int64_t, x)
TS_CONVERT(i64_i32, int64_t, uint32_t, static_cast<uint32_t>(x))
TS_CONVERT(i64_u8, int64_t, uint8_t, static_cast<uint8_t>(x))

TS_KERNEL(convert_f32_i64, Refusing<1>, 256) {
  each<int64_t, float>(p.point, [&](int64_t i, float x) {
    // 2^63 is exact in binary32. A NaN is not inside.
    const bool inside = x >= -0x1p63f && x < 0x1p63f;
    if (!inside) refuse(p.refusal, i);
    return inside ? static_cast<int64_t>(x) : 0;
  });
}

// The elements that a choice copies keep their bits, so they are read as integers.
#define TS_WHERE(bytes, type)                                                               \
  TS_KERNEL(convert_where_##bytes, Point<3>, 256) {                                         \
    each<type, uint8_t, type, type>(                                                        \
        p, [](int64_t, uint8_t chosen, type a, type b) { return chosen != 0 ? a : b; });    \
  }
TS_WHERE(1, uint8_t)
TS_WHERE(4, uint32_t)
TS_WHERE(8, uint64_t)

}  // namespace TS_ISA
}  // namespace tallystick
