// Operands of products as lines of terms: a tensor with strides, or one that is seen through taps.
#pragma once
#include "device.hpp"

namespace tallystick::TS_ISA {

// Term k of line x of batch g lies at
//   g % period * batch + x * line + k / run * outer + k % run * term.
struct Lines {
  const float* data;
  int64_t period, batch, line, run, outer, term;
};
struct LinesReader {
  const Lines& p;
  TS_INLINE float value(int64_t g, int64_t x, int64_t k) const {
    int64_t offset = k * p.term;
    if (k >= p.run) {
      const int64_t run = quotient_of_any(k, p.run);
      offset = run * p.outer + (k - run * p.run) * p.term;
    }
    if (p.batch) offset += (g - quotient_of_any(g, p.period) * p.period) * p.batch;
    return p.data[offset + x * p.line];
  }
  TS_INLINE double at(int64_t g, int64_t x, int64_t k) const {
    return static_cast<double>(value(g, x, k));
  }
};

// A tensor [n,C,H,W] seen through taps (products/patches.py). Tap (c,i,j) of place (n,y,x) is
// the element of channel c at row y·step + i·tap - edge, and at the column that is computed likewise.
// Outside of the tensor, and between elements where it is spread, a tap is +0.
struct Side {
  int64_t size, spread, places, step, taps, tap, edge;
};
struct Window {
  const float* data;
  int64_t image, group, channel;  // strides
  Side rows, columns;
};
TS_INLINE int64_t source_of(const Side& side, int64_t place, int64_t tap) {  // -1: none
  const int64_t at = place * side.step + tap * side.tap - side.edge;
  if (at < 0 || at >= side.size * side.spread) return -1;
  if (side.spread == 1) return at;
  const int64_t element = quotient_of_any(at, side.spread);
  return element * side.spread == at ? element : -1;
}
struct Spot { int64_t base, y, x; };
TS_INLINE Spot place_of(const Window& w, int64_t g, int64_t place) {
  const int64_t row = quotient_of_any(place, w.columns.places), n = quotient_of_any(row, w.rows.places);
  return {n * w.image + g * w.group, row - n * w.rows.places, place - row * w.columns.places};
}
TS_INLINE float tap_of(const Window& w, const Spot& place, int64_t tap) {
  const int64_t line = quotient_of_any(tap, w.columns.taps), c = quotient_of_any(line, w.rows.taps);
  const int64_t y = source_of(w.rows, place.y, line - c * w.rows.taps);
  const int64_t x = source_of(w.columns, place.x, tap - line * w.columns.taps);
  if (y < 0 || x < 0) return 0.0f;
  return w.data[place.base + c * w.channel + y * w.columns.size + x];
}
struct PlacesReader {  // a line is a place, a term a tap
  const Window& p;
  TS_INLINE float value(int64_t g, int64_t x, int64_t k) const {
    return tap_of(p, place_of(p, g, x), k);
  }
  TS_INLINE double at(int64_t g, int64_t x, int64_t k) const {
    return static_cast<double>(value(g, x, k));
  }
};
struct TapsReader {  // a line is a tap, a term a place
  const Window& p;
  TS_INLINE float value(int64_t g, int64_t x, int64_t k) const {
    return tap_of(p, place_of(p, g, k), x);
  }
  TS_INLINE double at(int64_t g, int64_t x, int64_t k) const {
    return static_cast<double>(value(g, x, k));
  }
};

}  // namespace tallystick::TS_ISA
