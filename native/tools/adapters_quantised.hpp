// Vector calls of the quantised table (NUMERICS 19).
#pragma once
#include "adapters_dot.hpp"
#include "families/quantised.hpp"

namespace vectors {

inline void run_dequantize(Case& c) {
  int format = 0;
  while (c.s("format") != kBlockFormats[format]) ++format;
  const BlockFormat kind = static_cast<BlockFormat>(format);
  TS_DISPATCH(quantised).dequantize(kind, c.in[0].as<uint8_t>(),
                                    c.in[0].numel() / block_shape(kind).size, c.got[0].f32());
}

}  // namespace vectors
