// Cumulative sums: in a row, one addition after the other (NUMERICS 3.8).
#include "sums.hpp"

namespace tallystick::TS_ISA {

struct Scan {
  const float* x;
  float* y;
  int64_t rows, n, inner;  // rows: of the whole tensor; inner: rows side by side
};

// A thread for each row; neighbouring threads have neighbouring rows.
TS_KERNEL(scan_columns, Scan, 256) {
  constexpr int kAhead = 8;
  for (int64_t r = first_item(); r < p.rows; r += item_step()) {
    const int64_t outer = r / p.inner, base = outer * p.inner * p.n + (r - outer * p.inner);
    float sum = Sum::identity(), next[kAhead] = {};
    for (int64_t i = 0; i < p.n; i += kAhead) {
      TS_UNROLL
      for (int k = 0; k < kAhead; ++k)
        if (i + k < p.n) next[k] = p.x[base + (i + k) * p.inner];
      TS_UNROLL
      for (int k = 0; k < kAhead; ++k) {
        if (i + k >= p.n) break;
        sum = sum + next[k];
        put1(p.y + base + (i + k) * p.inner, sum);
      }
    }
  }
}

// 32 rows for each warp, a lane each. Tiles of 32 elements of every row pass through shared memory,
// so that rows are read and written along their elements.
constexpr int kScanWarps = 4, kScanTile = 32, kScanRow = kScanTile + 1;
TS_KERNEL(scan_rows, Scan, kScanWarps * 32) {
  TS_SHARED(float, room, kScanWarps * kScanTile * kScanRow);
  float* tile = room + warp_index() * kScanTile * kScanRow;
  const int lane = static_cast<int>(lane_index());
  const int64_t step = item_step();
  for (int64_t first = first_item() - lane; first < p.rows; first += step) {
    const int rows = static_cast<int>(ts_min<int64_t>(kScanTile, p.rows - first));
    const float* x = p.x + first * p.n;
    float* y = p.y + first * p.n;
    float sum = Sum::identity();
    for (int64_t i = 0; i < p.n; i += kScanTile) {
      const int columns = static_cast<int>(ts_min<int64_t>(kScanTile, p.n - i));
      for (int r = 0; r < rows; ++r)
        if (lane < columns) tile[r * kScanRow + lane] = x[r * p.n + i + lane];
      warp_barrier();
      if (lane < rows) {
        for (int k = 0; k < columns; ++k) {
          sum = sum + tile[lane * kScanRow + k];
          tile[lane * kScanRow + k] = sum;
        }
      }
      warp_barrier();
      for (int r = 0; r < rows; ++r)
        if (lane < columns) put1(y + r * p.n + i + lane, tile[r * kScanRow + lane]);
      warp_barrier();
    }
  }
}

}  // namespace tallystick::TS_ISA
