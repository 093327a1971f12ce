// The state of the exact accumulator (NUMERICS 13.5). Its type does not depend on the instruction
// set.
#pragma once
#ifdef __CUDACC_RTC__
#include "tallystick/ts_base.hpp"
#else
#include <cstddef>
#include <cstdint>
#endif

namespace tallystick {

constexpr size_t kAccDigits = 22;  // of 32 bits; the lowest is worth 2^-362
constexpr size_t kAccBytes = 80;   // of a record (NUMERICS 13.5)
constexpr uint32_t kAccNan = 1, kAccPlus = 2, kAccMinus = 4;

struct ExactAcc {
  int64_t digit[kAccDigits] = {};
  uint32_t flags = 0;
};

}  // namespace tallystick
