// The sizes of the SUM rule (NUMERICS 3.1), for the kernels of every machine.
#pragma once
#include "tallystick/ts_base.hpp"

namespace tallystick::TS_ISA {

constexpr size_t kSumBlock = 256;
constexpr size_t kSumLanes = 32;
constexpr uint32_t kMinusZero = 0x80000000u;  // the identity of addition (3.2)

}  // namespace tallystick::TS_ISA
