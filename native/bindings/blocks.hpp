// The formats of quantised weights by name (NUMERICS 19.1).
#pragma once
#include <nanobind/stl/string.h>

#include <string>

#include "arrays.hpp"
#include "families/quantised.hpp"

namespace tallystick {

inline BlockFormat block_format(const std::string& name) {
  constexpr const char* kNames[] = {"q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q4_k", "q5_k", "q6_k"};
  for (int i = 0; i < 8; ++i)
    if (name == kNames[i]) return static_cast<BlockFormat>(i);
  throw nb::value_error("unknown format of quantised weights");
}

}  // namespace tallystick
