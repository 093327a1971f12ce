// The formats of quantised weights by name (NUMERICS 19.1).
#pragma once
#include <nanobind/stl/string.h>

#include <string>

#include "arrays.hpp"
#include "families/quantised.hpp"

namespace tallystick {

inline BlockFormat block_format(const std::string& name) {
  int number = 0;
  for (const char* known : kBlockFormats) {
    if (name == known) return static_cast<BlockFormat>(number);
    ++number;
  }
  throw nb::value_error("unknown format of quantised weights");
}

}  // namespace tallystick
