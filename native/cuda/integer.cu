// Operators on integers and bools, and conversions, from the operators' forms.
// Made by native/tools/render_pointwise.py; do not edit.
#include "point.hpp"
#include "whole.hpp"

namespace tallystick::TS_ISA {

// aten.bitwise_and.Tensor, NUMERICS 10.5
TS_KERNEL(integer_bool_bitwise_and, Point<2>, 256) {
  each<uint8_t, uint8_t, uint8_t>(p, [](int64_t, uint8_t a, uint8_t b) { return a & b; });
}

// aten.bitwise_not, NUMERICS 10.5
TS_KERNEL(integer_bool_bitwise_not, Point<1>, 256) {
  each<uint8_t, uint8_t>(p, [](int64_t, uint8_t x) { return !x; });
}

// aten.bitwise_or.Tensor, NUMERICS 10.5
TS_KERNEL(integer_bool_bitwise_or, Point<2>, 256) {
  each<uint8_t, uint8_t, uint8_t>(p, [](int64_t, uint8_t a, uint8_t b) { return a | b; });
}

// aten._to_copy, NUMERICS 10.7
TS_KERNEL(integer_bool_to_copy_f32, Point<1>, 256) {
  each<float, uint8_t>(p, [](int64_t, uint8_t x) { return static_cast<float>(x != 0); });
}

// aten._to_copy, NUMERICS 10.7
TS_KERNEL(integer_bool_to_copy_i64, Point<1>, 256) {
  each<int64_t, uint8_t>(p, [](int64_t, uint8_t x) { return static_cast<int64_t>(x != 0); });
}

// aten._to_copy, NUMERICS 10.7
TS_KERNEL(integer_f32_to_copy_bool, Point<1>, 256) {
  each<uint8_t, float>(p, [](int64_t, float x) { return x != 0; });
}

// aten._to_copy, NUMERICS 10.7
TS_KERNEL(integer_f32_to_copy_i64, Refusing<1>, 256) {
  each<int64_t, float>(p.point, [&](int64_t i, float x) -> int64_t {
    if (!((x >= -9.223372036854776e+18f) & (x < 9.223372036854776e+18f))) {
      refuse(p.refusal, i);
      return 0;
    }
    return static_cast<int64_t>(x);
  });
}

// aten.eq.Tensor, NUMERICS 10.5
TS_KERNEL(integer_i32_eq, Point<2>, 256) {
  each<uint8_t, int32_t, int32_t>(p, [](int64_t, int32_t a, int32_t b) { return a == b; });
}

// aten.ge.Tensor, NUMERICS 10.5
TS_KERNEL(integer_i32_ge, Point<2>, 256) {
  each<uint8_t, int32_t, int32_t>(p, [](int64_t, int32_t a, int32_t b) { return a >= b; });
}

// aten.gt.Tensor, NUMERICS 10.5
TS_KERNEL(integer_i32_gt, Point<2>, 256) {
  each<uint8_t, int32_t, int32_t>(p, [](int64_t, int32_t a, int32_t b) { return a > b; });
}

// aten.le.Tensor, NUMERICS 10.5
TS_KERNEL(integer_i32_le, Point<2>, 256) {
  each<uint8_t, int32_t, int32_t>(p, [](int64_t, int32_t a, int32_t b) { return a <= b; });
}

// aten.lt.Tensor, NUMERICS 10.5
TS_KERNEL(integer_i32_lt, Point<2>, 256) {
  each<uint8_t, int32_t, int32_t>(p, [](int64_t, int32_t a, int32_t b) { return a < b; });
}

// aten.ne.Tensor, NUMERICS 10.5
TS_KERNEL(integer_i32_ne, Point<2>, 256) {
  each<uint8_t, int32_t, int32_t>(p, [](int64_t, int32_t a, int32_t b) { return a != b; });
}

// aten._to_copy, NUMERICS 10.7
TS_KERNEL(integer_i32_to_copy_i64, Point<1>, 256) {
  each<int64_t, int32_t>(p, [](int64_t, int32_t x) { return static_cast<int64_t>(x); });
}

// aten.add.Tensor, NUMERICS 10.2
TS_KERNEL(integer_i64_add, Point<3>, 256) {
  each<int64_t, int64_t, int64_t, int64_t>(p, [](int64_t, int64_t a, int64_t b, int64_t alpha) {
    return w_add(a, w_mul(alpha, b));
  });
}

// aten.bitwise_and.Tensor, NUMERICS 10.5
TS_KERNEL(integer_i64_bitwise_and, Point<2>, 256) {
  each<int64_t, int64_t, int64_t>(p, [](int64_t, int64_t a, int64_t b) { return a & b; });
}

// aten.bitwise_left_shift.Tensor, NUMERICS 10.11
TS_KERNEL(integer_i64_bitwise_left_shift, Point<2>, 256) {
  each<int64_t, int64_t, int64_t>(p, [](int64_t, int64_t a, int64_t b) {
    return w_left_shift(a, b);
  });
}

// aten.bitwise_not, NUMERICS 10.5
TS_KERNEL(integer_i64_bitwise_not, Point<1>, 256) {
  each<int64_t, int64_t>(p, [](int64_t, int64_t x) { return ~x; });
}

// aten.bitwise_or.Tensor, NUMERICS 10.5
TS_KERNEL(integer_i64_bitwise_or, Point<2>, 256) {
  each<int64_t, int64_t, int64_t>(p, [](int64_t, int64_t a, int64_t b) { return a | b; });
}

// aten.bitwise_right_shift.Tensor, NUMERICS 10.11
TS_KERNEL(integer_i64_bitwise_right_shift, Point<2>, 256) {
  each<int64_t, int64_t, int64_t>(p, [](int64_t, int64_t a, int64_t b) {
    return w_right_shift(a, b);
  });
}

// aten.bitwise_xor.Tensor, NUMERICS 10.11
TS_KERNEL(integer_i64_bitwise_xor, Point<2>, 256) {
  each<int64_t, int64_t, int64_t>(p, [](int64_t, int64_t a, int64_t b) { return a ^ b; });
}

// aten.clamp, NUMERICS 10.4
TS_KERNEL(integer_i64_clamp_min_max, Point<3>, 256) {
  each<int64_t, int64_t, int64_t, int64_t>(p, [](int64_t, int64_t x, int64_t min, int64_t max) {
    return ts_min(ts_max(x, min), max);
  });
}

// aten.eq.Tensor, NUMERICS 10.5
TS_KERNEL(integer_i64_eq, Point<2>, 256) {
  each<uint8_t, int64_t, int64_t>(p, [](int64_t, int64_t a, int64_t b) { return a == b; });
}

// aten.floor_divide, NUMERICS 10.10
TS_KERNEL(integer_i64_floor_divide, Refusing<2>, 256) {
  each<int64_t, int64_t, int64_t>(p.point, [&](int64_t i, int64_t a, int64_t b) -> int64_t {
    if (b == 0) {
      refuse(p.refusal, i);
      return 0;
    }
    return w_floor_divide(a, b);
  });
}

// aten.ge.Tensor, NUMERICS 10.5
TS_KERNEL(integer_i64_ge, Point<2>, 256) {
  each<uint8_t, int64_t, int64_t>(p, [](int64_t, int64_t a, int64_t b) { return a >= b; });
}

// aten.gt.Tensor, NUMERICS 10.5
TS_KERNEL(integer_i64_gt, Point<2>, 256) {
  each<uint8_t, int64_t, int64_t>(p, [](int64_t, int64_t a, int64_t b) { return a > b; });
}

// aten.le.Tensor, NUMERICS 10.5
TS_KERNEL(integer_i64_le, Point<2>, 256) {
  each<uint8_t, int64_t, int64_t>(p, [](int64_t, int64_t a, int64_t b) { return a <= b; });
}

// aten.lt.Tensor, NUMERICS 10.5
TS_KERNEL(integer_i64_lt, Point<2>, 256) {
  each<uint8_t, int64_t, int64_t>(p, [](int64_t, int64_t a, int64_t b) { return a < b; });
}

// aten.maximum, NUMERICS 10.4
TS_KERNEL(integer_i64_maximum, Point<2>, 256) {
  each<int64_t, int64_t, int64_t>(p, [](int64_t, int64_t a, int64_t b) { return ts_max(a, b); });
}

// aten.minimum, NUMERICS 10.4
TS_KERNEL(integer_i64_minimum, Point<2>, 256) {
  each<int64_t, int64_t, int64_t>(p, [](int64_t, int64_t a, int64_t b) { return ts_min(a, b); });
}

// aten.mul.Tensor, NUMERICS 10.2
TS_KERNEL(integer_i64_mul, Point<2>, 256) {
  each<int64_t, int64_t, int64_t>(p, [](int64_t, int64_t a, int64_t b) { return w_mul(a, b); });
}

// aten.ne.Tensor, NUMERICS 10.5
TS_KERNEL(integer_i64_ne, Point<2>, 256) {
  each<uint8_t, int64_t, int64_t>(p, [](int64_t, int64_t a, int64_t b) { return a != b; });
}

// aten.sub.Tensor, NUMERICS 10.2
TS_KERNEL(integer_i64_sub, Point<3>, 256) {
  each<int64_t, int64_t, int64_t, int64_t>(p, [](int64_t, int64_t a, int64_t b, int64_t alpha) {
    return w_sub(a, w_mul(alpha, b));
  });
}

// aten._to_copy, NUMERICS 10.7
TS_KERNEL(integer_i64_to_copy_bool, Point<1>, 256) {
  each<uint8_t, int64_t>(p, [](int64_t, int64_t x) { return x != 0; });
}

// aten._to_copy, NUMERICS 10.7
TS_KERNEL(integer_i64_to_copy_f32, Point<1>, 256) {
  each<float, int64_t>(p, [](int64_t, int64_t x) { return static_cast<float>(x); });
}

// aten._to_copy, NUMERICS 10.7
TS_KERNEL(integer_i64_to_copy_i32, Point<1>, 256) {
  each<int32_t, int64_t>(p, [](int64_t, int64_t x) { return static_cast<int32_t>(x); });
}

// aten._to_copy, NUMERICS 10.7
TS_KERNEL(integer_i64_to_copy_u8, Point<1>, 256) {
  each<uint8_t, int64_t>(p, [](int64_t, int64_t x) { return static_cast<uint8_t>(x); });
}

// aten.eq.Tensor, NUMERICS 10.5
TS_KERNEL(integer_u8_eq, Point<2>, 256) {
  each<uint8_t, uint8_t, uint8_t>(p, [](int64_t, uint8_t a, uint8_t b) { return a == b; });
}

// aten.ge.Tensor, NUMERICS 10.5
TS_KERNEL(integer_u8_ge, Point<2>, 256) {
  each<uint8_t, uint8_t, uint8_t>(p, [](int64_t, uint8_t a, uint8_t b) { return a >= b; });
}

// aten.gt.Tensor, NUMERICS 10.5
TS_KERNEL(integer_u8_gt, Point<2>, 256) {
  each<uint8_t, uint8_t, uint8_t>(p, [](int64_t, uint8_t a, uint8_t b) { return a > b; });
}

// aten.le.Tensor, NUMERICS 10.5
TS_KERNEL(integer_u8_le, Point<2>, 256) {
  each<uint8_t, uint8_t, uint8_t>(p, [](int64_t, uint8_t a, uint8_t b) { return a <= b; });
}

// aten.lt.Tensor, NUMERICS 10.5
TS_KERNEL(integer_u8_lt, Point<2>, 256) {
  each<uint8_t, uint8_t, uint8_t>(p, [](int64_t, uint8_t a, uint8_t b) { return a < b; });
}

// aten.ne.Tensor, NUMERICS 10.5
TS_KERNEL(integer_u8_ne, Point<2>, 256) {
  each<uint8_t, uint8_t, uint8_t>(p, [](int64_t, uint8_t a, uint8_t b) { return a != b; });
}

// aten._to_copy, NUMERICS 10.7
TS_KERNEL(integer_u8_to_copy_i64, Point<1>, 256) {
  each<int64_t, uint8_t>(p, [](int64_t, uint8_t x) { return static_cast<int64_t>(x); });
}

}  // namespace tallystick::TS_ISA
