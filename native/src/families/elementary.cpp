// Arrays of the elementary functions, one copy per instruction set.
#include "families/elementary.hpp"

#include "tallystick/elementary.hpp"
#include "tallystick/pow.hpp"

namespace tallystick {
namespace TS_ISA {
namespace {

template <f32reg (*F)(f32reg)>
void map_array(const float* x, float* y, size_t n) {
  size_t i = 0;
  for (; i + kF32RegLanes <= n; i += kF32RegLanes) r_store(y + i, F(r_load(x + i)));
  if (i < n) {
    float rest[kF32RegLanes] = {};
    for (size_t j = i; j < n; ++j) rest[j - i] = x[j];
    r_store(rest, F(r_load(rest)));
    for (size_t j = i; j < n; ++j) y[j] = rest[j - i];
  }
#ifdef TALLYSTICK_FAULT
  if (n) y[0] = planted(y[0]);
#endif
}

void pow_array(const float* x, const float* y, size_t y_step, float* out, size_t n) {
  for (size_t i = 0; i < n; ++i) out[i] = cr_pow(x[i], y[i * y_step]);
#ifdef TALLYSTICK_FAULT
  if (n) out[0] = planted(out[0]);
#endif
}

}  // namespace
}  // namespace TS_ISA

namespace isa = TS_ISA;
TS_DEFINE_TABLE(ElementaryTable, elementary) = {
#define TS_UNARY_MAP(name) isa::map_array<isa::cr_##name>,
    TS_UNARY(TS_UNARY_MAP) isa::pow_array};

}  // namespace tallystick
