// How work is cut into parts.
#pragma once
#include "tallystick/ts_base.hpp"

namespace tallystick::TS_ISA {

// Parts of nearly equal size, none above `most`.
struct Parts {
  size_t count, base, extra;
  Parts(size_t total, size_t most)
      : count(ceil_div(total, most)),
        base(count ? total / count : 0),
        extra(count ? total % count : 0) {}
  size_t begin(size_t i) const { return i * base + ts_min(i, extra); }
  size_t size(size_t i) const { return base + (i < extra ? 1 : 0); }
};

// Width of the strips. The fullest thread's share should be small. So should the number of passes
// over the shared block, and narrow strips multiply that number.
TS_INLINE size_t strip_width(size_t total, size_t count, size_t unit, size_t widest, size_t threads) {
  if (threads == 1 && count == 1 && total <= widest) return widest;  // one strip
  constexpr double kStreaming = 8.0;  // measured: 128 columns cost 4 % more than 256
  size_t best = unit;
  double best_cost = 0.0;
  for (size_t width = unit; width <= widest; width += unit) {
    const size_t strips = ceil_div(total, width) * count;
    const double share = strips == 1 ? double(total) : double(ceil_div(strips, threads) * width);
    const double cost = share * (1.0 + kStreaming / double(width));
    if (width == unit || cost <= best_cost) {
      best = width;
      best_cost = cost;
    }
  }
  return best;
}

}  // namespace tallystick::TS_ISA
