// Operators on integers and bool (NUMERICS 10.4, 10.5, 10.8, 10.10, 10.11).
#include "point.hpp"

namespace tallystick {
namespace TS_ISA {

// Modulo 2^64: unsigned arithmetic wraps, signed overflow would be undefined.
TS_KERNEL(integer_add, Point<3>, 256) {
  each<uint64_t, uint64_t, uint64_t, uint64_t>(
      p, [](int64_t, uint64_t a, uint64_t b, uint64_t alpha) { return a + alpha * b; });
}
TS_KERNEL(integer_sub, Point<3>, 256) {
  each<uint64_t, uint64_t, uint64_t, uint64_t>(
      p, [](int64_t, uint64_t a, uint64_t b, uint64_t alpha) { return a - alpha * b; });
}
TS_KERNEL(integer_mul, Point<2>, 256) {
  each<uint64_t, uint64_t, uint64_t>(p, [](int64_t, uint64_t a, uint64_t b) { return a * b; });
}

TS_INLINE int64_t floor_quotient(int64_t a, int64_t b) {
  if (b == 0) return 0;
  if (b == -1) return static_cast<int64_t>(0 - static_cast<uint64_t>(a));  // -2^63 wraps
  const int64_t q = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? q - 1 : q;
}
TS_KERNEL(integer_floor_divide, Refusing<2>, 256) {
  each<int64_t, int64_t, int64_t>(p.point, [&](int64_t i, int64_t a, int64_t b) {
    if (b == 0) refuse(p.refusal, i);
    return floor_quotient(a, b);
  });
}

TS_KERNEL(integer_maximum, Point<2>, 256) {
  each<int64_t, int64_t, int64_t>(p, [](int64_t, int64_t a, int64_t b) { return ts_max(a, b); });
}
TS_KERNEL(integer_minimum, Point<2>, 256) {
  each<int64_t, int64_t, int64_t>(p, [](int64_t, int64_t a, int64_t b) { return ts_min(a, b); });
}
TS_KERNEL(integer_clamp, Point<3>, 256) {
  each<int64_t, int64_t, int64_t, int64_t>(p, [](int64_t, int64_t x, int64_t low, int64_t high) {
    return ts_min(ts_max(x, low), high);
  });
}

// By the type's name: bool is compared as uint8_t.
#define TS_COMPARE_AS(name, op, type)                                             \
  TS_KERNEL(integer_##name##_##type, Point<2>, 256) {                             \
    each<uint8_t, type, type>(p, [](int64_t, type a, type b) { return a op b; }); \
  }
#define TS_COMPARE(name, op)         \
  TS_COMPARE_AS(name, op, int64_t)   \
  TS_COMPARE_AS(name, op, int32_t)   \
  TS_COMPARE_AS(name, op, uint8_t)
TS_COMPARE(eq, ==)
TS_COMPARE(ne, !=)
TS_COMPARE(lt, <)
TS_COMPARE(le, <=)
TS_COMPARE(gt, >)
TS_COMPARE(ge, >=)

#define TS_LOGIC(name, op, type)                                                      \
  TS_KERNEL(integer_##name##_##type, Point<2>, 256) {                                 \
    each<type, type, type>(                                                           \
        p, [](int64_t, type a, type b) { return static_cast<type>(a op b); });        \
  }
TS_LOGIC(and, &, int64_t)
TS_LOGIC(or, |, int64_t)
TS_LOGIC(xor, ^, int64_t)
TS_LOGIC(and, &, uint8_t)
TS_LOGIC(or, |, uint8_t)
TS_KERNEL(integer_not_int64_t, Point<1>, 256) {
  each<int64_t, int64_t>(p, [](int64_t, int64_t a) { return ~a; });
}
TS_KERNEL(integer_not_uint8_t, Point<1>, 256) {  // of a bool
  each<uint8_t, uint8_t>(p, [](int64_t, uint8_t a) { return a == 0; });
}

// A device shifts by its own rule where the count is not below the width.
TS_KERNEL(integer_left_shift, Point<2>, 256) {
  each<uint64_t, uint64_t, uint64_t>(
      p, [](int64_t, uint64_t a, uint64_t b) { return b < 64 ? a << b : 0; });
}
TS_KERNEL(integer_right_shift, Point<2>, 256) {
  each<int64_t, int64_t, uint64_t>(
      p, [](int64_t, int64_t a, uint64_t b) { return a >> (b < 64 ? b : 63); });
}

}  // namespace TS_ISA
}  // namespace tallystick
