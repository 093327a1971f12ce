// The binary64 vector layer of the elementary functions: one small set of operations, written once
// per instruction set. `f64v` is a register of doubles, `f32reg` the float register whose lanes are
// evaluated by one or two of them. Every operation is a single IEEE-754 operation or moves bits, so
// that a kernel written over this layer gives the same bits on every path.
#pragma once
#include "tallystick/ts_base.hpp"

#if defined(TS_ISA_AVX512)
#include "tallystick/simd_f64_avx512.hpp"
#elif defined(TS_ISA_AVX2)
#include "tallystick/simd_f64_avx2.hpp"
#elif defined(TS_ISA_NEON)
#include "tallystick/simd_f64_neon.hpp"
#else
#include "tallystick/simd_f64_scalar.hpp"
#endif

namespace tallystick::TS_ISA {

// The compilers' operators on a register are the instruction sets' operations, lane by lane.
TS_INLINE f64v d_add(f64v a, f64v b) { return {a.v + b.v}; }
TS_INLINE f64v d_sub(f64v a, f64v b) { return {a.v - b.v}; }
TS_INLINE f64v d_mul(f64v a, f64v b) { return {a.v * b.v}; }
TS_INLINE f64v d_div(f64v a, f64v b) { return {a.v / b.v}; }

}  // namespace tallystick::TS_ISA
