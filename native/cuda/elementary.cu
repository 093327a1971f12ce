// Elementary functions and powers (NUMERICS 5, 10.6).
#include "point.hpp"

#include "tallystick/elementary.hpp"
#include "tallystick/pow.hpp"

namespace tallystick::TS_ISA {

#define TS_ELEMENTARY(name)                                                       \
  TS_KERNEL(elementary_##name, Point<1>, 256) {                                   \
    each<float, float>(p, [](int64_t, float x) { return cr_##name(x); });         \
  }

TS_ELEMENTARY(exp)
TS_ELEMENTARY(log)
TS_ELEMENTARY(tanh)
TS_ELEMENTARY(erf)
TS_ELEMENTARY(sigmoid)
TS_ELEMENTARY(sin)
TS_ELEMENTARY(cos)
TS_ELEMENTARY(rsqrt)
TS_ELEMENTARY(expm1)
TS_ELEMENTARY(log1p)
TS_ELEMENTARY(exp2)
TS_ELEMENTARY(log2)

TS_KERNEL(elementary_pow, Point<2>, 256) {
  each<float, float, float>(p, [](int64_t, float x, float y) { return cr_pow(x, y); });
}

}  // namespace tallystick::TS_ISA
