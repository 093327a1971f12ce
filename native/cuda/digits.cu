// Products of `exact/1` by 8-bit digits (NUMERICS 17.8) on the units for matrices of integers.
//
// A block computes Rows x Cols elements, a warp some of them. Slices of 64 positions of every digit of
// both operands are copied to shared memory while the slices before are multiplied. All pairs of digits
// are multiplied; pairs of equal weight share a sum of 32 bits. At the end of a block of terms the sums
// become a binary64 value, exactly, and are added to the element's total.
#include "blocks.hpp"

#include "tallystick/exact_split.hpp"

namespace tallystick::TS_ISA {

// Digit d of line x of batch z at data[d·plane + (z·lines + x)·pitch + position].
struct Digits {
  const int8_t* data;
  int64_t plane, lines;
};
struct Product {
  Digits a, b;
  Groups a_groups, b_groups;
  Output of;
  int64_t batches, width;
  int64_t tiles_m, tiles_n;
  int64_t pitch;          // of both operands
  int64_t block, each;    // slices of a block of terms; blocks of a segment
  // Of the kernels for single blocks of terms: the grid's y is the block first + y, whose sums go to
  // sums[y·size + (z·rows + i)·columns + j], size being that of all batches.
  double* sums;
  int64_t first;
  double* totals;         // of a tile for each block of the grid, where they are not in registers
};

// Rows of tiles that are computed together, so that what they read is still in the cache.
constexpr uint32_t kTilesTogether = 16;
constexpr int kSliceBytes = static_cast<int>(kSlice);

template <int DigitCount, int Rows, int Cols, int WarpRows, int WarpCols, int Stages, bool OwnTotals>
struct DigitTile {
  static constexpr int kDigits = DigitCount, kWeights = 2 * DigitCount - 1;
  static constexpr int kRows = Rows, kCols = Cols, kStages = Stages;
  static constexpr int kWarpRows = WarpRows, kWarpCols = WarpCols;
  static constexpr int kDown = Rows / WarpRows, kAcross = Cols / WarpCols;  // warps
  static constexpr int kThreads = 32 * kDown * kAcross;
  static constexpr int kM = WarpRows / 16, kN = WarpCols / 8;  // products of a warp
  static constexpr int kStage = DigitCount * (Rows + Cols) * kSliceBytes;
  static constexpr bool kOwnTotals = OwnTotals;
  static constexpr int kHalves = DigitCount == 2 ? 1 : 2;  // 2 spills registers there on sm_90
  static constexpr int kPass = kThreads / 4;  // lines that are copied at once, 16 bytes a thread
  static_assert(Rows + Cols <= kThreads, "a thread for each line's exponent");
  static_assert(kN % 2 == 0, "matrix_load4 brings two of them");
  static_assert(Rows * Cols * 4 <= Stages * kStage, "results fit where the slices were");
};

// Where 16 bytes of a line lie in a stage, so that the rows of a matrix are in different banks.
TS_INLINE int chunk_place(int line, int chunk) {
  return line * kSliceBytes + ((chunk ^ (line >> 1 & 3)) << 4);
}

// One operand's lines of a tile, as a thread copies them.
template <class T, int Extent>
struct Copier {
  static constexpr int kPasses = (Extent + T::kPass - 1) / T::kPass;
  const int8_t* from;
  int step[kPasses];  // from the first pass to another, in bytes; the host keeps it below 2^31

  TS_INLINE void begin(const Digits& p, int64_t pitch, uint32_t z, int first, int count,
                       int64_t position) {
    // Lines beyond the last are read as the last: what they give is not stored.
    const int line = ts_min(first + static_cast<int>(thread_index() / 4), count - 1);
    TS_UNROLL
    for (int e = 0; e < kPasses; ++e)
      step[e] = (ts_min(line + e * T::kPass, count - 1) - line) * static_cast<int>(pitch);
    from = p.data + (z * p.lines + line) * pitch + position + thread_index() % 4 * 16;
  }
  // `to`: this thread's place in the operand's part of the stage.
  TS_INLINE void start(const Digits& p, int8_t* to) {
    TS_UNROLL
    for (int d = 0; d < T::kDigits; ++d) {
      TS_UNROLL
      for (int e = 0; e < kPasses; ++e)
        if ((e + 1) * T::kPass <= Extent || thread_index() < (Extent - e * T::kPass) * 4)
          async_copy4(reinterpret_cast<float*>(to + (d * Extent + e * T::kPass) * kSliceBytes),
                      reinterpret_cast<const float*>(from + d * p.plane + step[e]));
    }
    from += kSliceBytes;
  }
};

struct TileOf { uint32_t z; int row, col; };
template <class T>
TS_INLINE TileOf tile_of(const Product& p, uint32_t number) {
  const uint32_t down = static_cast<uint32_t>(p.tiles_m), across = static_cast<uint32_t>(p.tiles_n);
  const uint32_t z = number / (down * across), own = number - z * (down * across);
  const uint32_t each = kTilesTogether * across, group = own / each, first = group * kTilesTogether;
  const uint32_t height = ts_min(down - first, kTilesTogether), rest = own - group * each;
  return {z, static_cast<int>(first + rest % height) * T::kRows,
          static_cast<int>(rest / height) * T::kCols};
}

// The pairs of digits of one slice.
template <class T>
TS_INLINE void multiply_slice(const int8_t* stage, int (&sum)[T::kWeights][T::kM][T::kN][4]) {
  const int lane = static_cast<int>(lane_index()), warp = static_cast<int>(warp_index());
  const int row = warp / T::kAcross * T::kWarpRows, col = warp % T::kAcross * T::kWarpCols;
  // Of a: rows 0 to 7, 8 to 15, and both again 16 bytes further on. Of b: 16 bytes after 16 bytes of
  // eight columns, then of the next eight.
  const int a_line = row + lane % 16, a_chunk = lane / 16;
  const int b_line = col + lane / 16 * 8 + lane % 8, b_chunk = lane / 8 % 2;
  const int8_t* const of_b = stage + T::kDigits * T::kRows * kSliceBytes;
  TS_UNROLL_BY(T::kHalves)
  for (int half = 0; half < 2; ++half) {  // 32 positions
    uint32_t a[T::kDigits][T::kM][4];
    TS_UNROLL
    for (int d = 0; d < T::kDigits; ++d) {
      TS_UNROLL
      for (int i = 0; i < T::kM; ++i)
        matrix_load4(a[d][i],
                     stage + chunk_place(d * T::kRows + a_line + 16 * i, 2 * half + a_chunk));
    }
    TS_UNROLL
    for (int j = 0; j < T::kN; j += 2) {
      TS_UNROLL
      for (int e = 0; e < T::kDigits; ++e) {
        uint32_t b[4];
        matrix_load4(b, of_b + chunk_place(e * T::kCols + b_line + 8 * j, 2 * half + b_chunk));
        TS_UNROLL
        for (int d = 0; d < T::kDigits; ++d) {
          TS_UNROLL
          for (int i = 0; i < T::kM; ++i) {
            matrix_multiply(sum[d + e][i][j], a[d][i], b[0], b[1]);
            matrix_multiply(sum[d + e][i][j + 1], a[d][i], b[2], b[3]);
          }
        }
      }
    }
  }
}

// Element `c` of product (i, j) of this thread in the tile.
template <class T>
TS_INLINE int own_row(int i, int c) {
  return static_cast<int>(warp_index()) / T::kAcross * T::kWarpRows + 16 * i + 8 * (c / 2) +
         static_cast<int>(lane_index()) / 4;
}
template <class T>
TS_INLINE int own_col(int j, int c) {
  return static_cast<int>(warp_index()) % T::kAcross * T::kWarpCols + 8 * j + c % 2 +
         static_cast<int>(lane_index()) % 4 * 2;
}

// A block of terms, in 53 bits.
template <class T>
TS_INLINE double sum_of(const int (&sum)[T::kWeights][T::kM][T::kN][4], int i, int j, int c) {
  if (T::kWeights == 1) return static_cast<double>(sum[0][i][j][c]);
  int64_t all = sum[0][i][j][c];
  TS_UNROLL
  for (int w = 1; w < T::kWeights; ++w)
    all += static_cast<int64_t>(sum[w][i][j][c]) * (int64_t(1) << (8 * w));
  return static_cast<double>(all);
}

// What becomes of a block of terms: it is added to the total of several; it is the only one; or its
// sums are stored. A total lies in registers where they suffice, and ends by way of shared memory;
// else it lies in scratch memory, where each thread has places of its own.
enum class Use { added, only, stored };

template <class T, Use kUse>
TS_INLINE void product(const Product& p, int8_t* shared) {
  constexpr int kEach = T::kM * T::kN * 4, kLines = T::kRows + T::kCols;
  constexpr bool kStored = kUse == Use::stored;
  constexpr bool kOwn = T::kOwnTotals && kUse == Use::added, kKept = !T::kOwnTotals && !kStored;
  constexpr bool kStaged = T::kOwnTotals && !kStored;
  constexpr int kTotalM = kOwn ? T::kM : 1, kTotalN = kOwn ? T::kN : 1;
  TS_SHARED(int, exponents, 2 * kLines);
  const int thread = static_cast<int>(thread_index());
  const int rows = static_cast<int>(p.of.rows), columns = static_cast<int>(p.of.columns);
  const int block = static_cast<int>(p.block);
  const int first_block = kStored ? static_cast<int>(p.first) + static_cast<int>(block_y()) : 0;
  // The slices of this block of the grid.
  const int end = static_cast<int>(p.pitch / kSlice) - first_block * block;
  const int slices = kStored ? ts_min(end, block) : end;
  const uint32_t count = static_cast<uint32_t>(p.batches * p.tiles_m * p.tiles_n);
  // The swizzle repeats after eight lines, and a pass has a multiple of eight.
  static_assert(T::kPass % 8 == 0, "whole rounds of the swizzle");
  int8_t* const to_a = shared + chunk_place(thread / 4, thread % 4);
  int8_t* const to_b = to_a + T::kDigits * T::kRows * kSliceBytes;
  float* const results = reinterpret_cast<float*>(shared);

  TS_ROLLED
  for (uint32_t number = block_x(); number < count; number += grid_x()) {
    const TileOf tile = tile_of<T>(p, number);
    block_barrier();  // the tile before has left the shared memory
    Copier<T, T::kRows> of_a;
    Copier<T, T::kCols> of_b;
    of_a.begin(p.a, p.pitch, tile.z, tile.row, rows, first_block * p.block * kSlice);
    of_b.begin(p.b, p.pitch, tile.z, tile.col, columns, first_block * p.block * kSlice);
    // The magnitude of one line's group, asked for a block ahead.
    const int segment =
        p.each == 1 ? first_block : static_cast<int>(quotient_of_any(first_block, p.each));
    const uint32_t* mus = p.a_groups.mu;
    if (thread < kLines) {
      const bool is_row = thread < T::kRows;
      const Groups& groups = is_row ? p.a_groups : p.b_groups;
      const int line = is_row ? ts_min(tile.row + thread, rows - 1)
                              : ts_min(tile.col + thread - T::kRows, columns - 1);
      const int64_t at = line + (is_row ? p.of.first_row : p.of.first_column);
      mus = groups.mu + group_of(groups, p.of.first_batch + tile.z, at) * groups.segments + segment;
    }
    uint32_t next = *mus;
    // Blocks of the segment that are left, and segments.
    int of_segment = static_cast<int>(p.each) - (first_block - segment * static_cast<int>(p.each));
    int segments = static_cast<int>(p.a_groups.segments) - segment;

    int sum[T::kWeights][T::kM][T::kN][4];
    double total[kTotalM][kTotalN][4];
    TS_UNROLL
    for (int i = 0; i < T::kM; ++i) {
      TS_UNROLL
      for (int j = 0; j < T::kN; ++j) {
        TS_UNROLL
        for (int c = 0; c < 4; ++c) {
          TS_UNROLL
          for (int w = 0; w < T::kWeights; ++w) sum[w][i][j][c] = 0;
          if (kOwn) total[i % kTotalM][j % kTotalN][c] = 0.0;
        }
      }
    }

    double* const kept = p.totals + (block_x() * int64_t(kEach * T::kThreads) + thread);
    if (kKept && kUse == Use::added) {
      TS_ROLLED
      for (int e = 0; e < kEach; ++e) kept[e * T::kThreads] = 0.0;
    }

    TS_UNROLL
    for (int s = 0; s < T::kStages - 1; ++s) {
      if (s < slices) {
        of_a.start(p.a, to_a + s * T::kStage);
        of_b.start(p.b, to_b + s * T::kStage);
      }
      async_commit();
    }
    // Where the stage that is multiplied begins, and the one that is filled.
    int now = 0, ahead = (T::kStages - 1) * T::kStage;
    int parity = 0;
    TS_ROLLED
    for (int s = 0; s < slices; parity ^= 1) {
      int* const exponent = exponents + parity * kLines;
      if (thread < kLines) {
        exponent[thread] = unit_exponent(next, static_cast<int>(p.width));
        if (--of_segment == 0) {
          of_segment = static_cast<int>(p.each);
          if (--segments != 0) next = *++mus;
        }
      }
      const int until = ts_min(s + block, slices);
      TS_ROLLED
      for (; s < until; ++s) {
        if (!has_fault(Fault::missing_wait)) async_wait<T::kStages - 2>();
        if (!has_fault(Fault::missing_barrier)) block_barrier();
        if (s + T::kStages - 1 < slices) {
          // A race: the slice that is being multiplied is overwritten.
          const int to = has_fault(Fault::race) ? now : ahead;
          of_a.start(p.a, to_a + to);
          of_b.start(p.b, to_b + to);
        }
        async_commit();
        multiply_slice<T>(shared + now, sum);
        now = now + T::kStage == T::kStages * T::kStage ? 0 : now + T::kStage;
        ahead = ahead + T::kStage == T::kStages * T::kStage ? 0 : ahead + T::kStage;
      }

      // The block of terms is complete.
      if (kStaged && kUse == Use::only) block_barrier();  // results are put where the slices are
      TS_UNROLL
      for (int i = 0; i < T::kM; ++i) {
        TS_UNROLL
        for (int j = 0; j < T::kN; ++j) {
          TS_UNROLL
          for (int c = 0; c < 4; ++c) {
            const double value = sum_of<T>(sum, i, j, c);
            TS_UNROLL
            for (int w = 0; w < T::kWeights; ++w) sum[w][i][j][c] = 0;
            if (kStored) {
              const int r = tile.row + own_row<T>(i, c), k = tile.col + own_col<T>(j, c);
              if (r < rows && k < columns)
                p.sums[((block_y() * p.batches + tile.z) * rows + r) * columns + k] = value;
              continue;
            }
            const int unit = exponent[own_row<T>(i, c)] + exponent[T::kRows + own_col<T>(j, c)];
            double* const at = kept + ((i * T::kN + j) * 4 + c) * T::kThreads;
            double& own = total[i % kTotalM][j % kTotalN][c];
            if (kStaged && kUse == Use::only)
              results[own_row<T>(i, c) * T::kCols + own_col<T>(j, c)] =
                  static_cast<float>(with_block(0.0, value, unit));
            else if (kOwn) own = with_block(own, value, unit);
            else *at = with_block(kUse == Use::only ? 0.0 : *at, value, unit);
          }
        }
      }
    }
    if (kKept) {
      TS_ROLLED
      for (int e = 0; e < kEach; ++e) {
        const int pair = e / 4, i = pair / T::kN, j = pair - i * T::kN;
        const int row = tile.row + own_row<T>(i, e % 4), col = tile.col + own_col<T>(j, e % 4);
        const float d = static_cast<float>(kept[e * T::kThreads]);
        if (row < rows && col < columns) put_dot(p.of, tile.z, row, col, d);
      }
    }
    if (kOwn) {
      block_barrier();  // as above
      TS_UNROLL
      for (int i = 0; i < T::kM; ++i) {
        TS_UNROLL
        for (int j = 0; j < T::kN; ++j) {
          TS_UNROLL
          for (int c = 0; c < 4; ++c)
            results[own_row<T>(i, c) * T::kCols + own_col<T>(j, c)] =
                static_cast<float>(total[i % kTotalM][j % kTotalN][c]);
        }
      }
    }
    if (kStaged) {
      block_barrier();
      TS_ROLLED
      for (int e = thread; e < T::kRows * T::kCols; e += T::kThreads) {
        const int row = tile.row + e / T::kCols, col = tile.col + e % T::kCols;
        if (row < rows && col < columns) put_dot(p.of, tile.z, row, col, results[e]);
      }
    }
  }
}

#define TS_DIGITS_KERNEL(kernel, name, blocks, use)                                           \
  TS_KERNEL_AT_ONCE(kernel, Product, Tile##name::kThreads, blocks) {                          \
    TS_DYNAMIC_SHARED(int8_t, shared);                                                        \
    product<Tile##name, use>(p, shared);                                                      \
  }
#define TS_DIGITS(name, blocks, ...)                                                          \
  using Tile##name = DigitTile<__VA_ARGS__>;                                                  \
  TS_DIGITS_KERNEL(digits_##name, name, blocks, Use::added)                                   \
  TS_DIGITS_KERNEL(digits_##name##_only, name, blocks, Use::only)
#define TS_DIGITS_SUMS(name, blocks)                                                          \
  TS_DIGITS_KERNEL(digits_##name##_sums, name, blocks, Use::stored)

// Blocks at once; digits; elements of a block, of a warp; stages; totals in registers. The same table
// is in contracts/exact/cuda/ways.py.
TS_DIGITS(1x128x96, 1, 1, 128, 96, 32, 48, 4, true)
TS_DIGITS(2x128x96, 1, 2, 128, 96, 32, 48, 3, false)
TS_DIGITS(3x64x128, 1, 3, 64, 128, 32, 32, 2, false)
TS_DIGITS(1x32x64, 4, 1, 32, 64, 16, 32, 4, true)
TS_DIGITS(2x32x64, 4, 2, 32, 64, 16, 32, 3, false)
TS_DIGITS(3x32x64, 3, 3, 32, 64, 16, 32, 2, false)
TS_DIGITS_SUMS(1x32x64, 4)
TS_DIGITS_SUMS(2x32x64, 3)
TS_DIGITS_SUMS(3x32x64, 2)

}  // namespace tallystick::TS_ISA
