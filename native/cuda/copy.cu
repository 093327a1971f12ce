// Copies between strided tensors: bits move, values are never read (NUMERICS 9).
#include "device.hpp"

namespace tallystick::TS_ISA {

constexpr int kCopiesAtOnce = 4;  // loads that a thread has under way

struct CopyStrided {
  Space space;
  Strides strides[2];  // of the source, of the target
  const void* source;
  void* target;
};

template <class T>
TS_INLINE void copy_strided(const CopyStrided& p) {
  const T* source = static_cast<const T*>(p.source);
  T* target = static_cast<T*>(p.target);
  const int64_t count = p.space.count, step = item_step();
  for (int64_t first = first_item(); first < count; first += kCopiesAtOnce * step) {
    T held[kCopiesAtOnce];
    int64_t to[kCopiesAtOnce];
    TS_UNROLL
    for (int k = 0; k < kCopiesAtOnce; ++k) {
      const int64_t i = first + k * step;
      if (i >= count) continue;
      const auto at = places<2>(p.space, p.strides, i);
      held[k] = source[at.at[0]];
      to[k] = at.at[1];
    }
    TS_UNROLL
    for (int k = 0; k < kCopiesAtOnce; ++k)
      if (first + k * step < count) target[to[k]] = held[k];
  }
}

TS_KERNEL(copy_strided_1, CopyStrided, 256) { copy_strided<uint8_t>(p); }
TS_KERNEL(copy_strided_4, CopyStrided, 256) { copy_strided<uint32_t>(p); }
TS_KERNEL(copy_strided_8, CopyStrided, 256) { copy_strided<uint64_t>(p); }
TS_KERNEL(copy_strided_16, CopyStrided, 256) { copy_strided<Wide>(p); }

// Transposes: the source is contiguous along one axis of `rows` places, the target along another of
// `columns`. A tile goes through shared memory, so that both sides are read and written in lines.
constexpr uint32_t kTile = 32;

struct CopyTurned {
  Space space;         // the axes beside these two
  Strides strides[2];  // of the source, of the target, along those axes
  const void* source;
  void* target;
  int64_t rows, columns;
  int64_t source_step;  // from column to column in the source
  int64_t target_step;  // from row to row in the target
};

template <class T>
TS_INLINE void copy_turned(const CopyTurned& p) {
  TS_SHARED(T, tile, kTile * (kTile + 1));
  const int64_t down = (p.rows + kTile - 1) / kTile, across = (p.columns + kTile - 1) / kTile;
  const int64_t tiles = p.space.count * down * across;
  const uint32_t lane = lane_index(), warp = warp_index(), warps = thread_count() / kWarp;
  for (int64_t number = block_x(); number < tiles; number += grid_x()) {
    const int64_t column = number % across * kTile, row = number / across % down * kTile;
    const auto at = places<2>(p.space, p.strides, number / (across * down));
    const T* source = static_cast<const T*>(p.source) + at.at[0];
    T* target = static_cast<T*>(p.target) + at.at[1];
    for (uint32_t k = warp; k < kTile; k += warps)
      if (row + lane < p.rows && column + k < p.columns)
        tile[k * (kTile + 1) + lane] = source[row + lane + (column + k) * p.source_step];
    if (!has_fault(Fault::missing_barrier)) block_barrier();
    for (uint32_t k = warp; k < kTile; k += warps)
      if (row + k < p.rows && column + lane < p.columns)
        target[(row + k) * p.target_step + column + lane] = tile[lane * (kTile + 1) + k];
    block_barrier();
  }
}

TS_KERNEL(copy_turned_1, CopyTurned, 256) { copy_turned<uint8_t>(p); }
TS_KERNEL(copy_turned_4, CopyTurned, 256) { copy_turned<uint32_t>(p); }
TS_KERNEL(copy_turned_8, CopyTurned, 256) { copy_turned<uint64_t>(p); }

}  // namespace tallystick::TS_ISA
