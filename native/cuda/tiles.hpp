// Tiles of products (NUMERICS 2): a block computes Rows x Cols results, a thread some of them.
//
// The terms come in slices of Depth, which are copied into shared memory while the slice before is
// multiplied. Every result has two numbers: the chain of its chunk and the total of the chunks
// before. The order of its terms is the clause's for every tile, so the choice cannot change a bit.
#pragma once
#include "loads.hpp"
#include "tallystick/simd_f32.hpp"

namespace tallystick::TS_ISA {

constexpr int64_t kChunk = 128;  // NUMERICS 2.1
// Rows of tiles that are computed together, so that what they read is still in the cache.
constexpr uint32_t kTogether = 8;

struct alignas(16) Four { float of[4]; };

template <int Rows, int Cols, int ThreadRows, int ThreadCols, int Depth, bool SharedTotals>
struct Tile {
  static constexpr int kRows = Rows, kCols = Cols, kDepth = Depth;
  static constexpr int kThreadRows = ThreadRows, kThreadCols = ThreadCols;
  static constexpr int kDown = Rows / ThreadRows, kAcross = Cols / ThreadCols;  // threads
  static constexpr int kThreads = kDown * kAcross;
  // Four more, so that eight terms of four elements lie in 32 different banks.
  static constexpr int kRowStep = Rows + 4, kColStep = Cols + 4;
  static constexpr int kSlice = Depth * (kRowStep + kColStep);  // floats
  static constexpr bool kSharedTotals = SharedTotals;
  static_assert(kChunk % Depth == 0 && Depth % 8 == 0, "a chunk is whole slices");
  static_assert(kDown % 4 == 0 && kAcross % 8 == 0, "a warp is 4 x 8 threads");
};

// Division by a number that the host knows, of numbers below 2^31. `divisor` 0: there is none.
struct Divide { int64_t divisor, factor, shift; };
TS_INLINE uint32_t quotient(const Divide& by, uint32_t i) {
  return static_cast<uint32_t>(static_cast<uint64_t>(i) * static_cast<uint32_t>(by.factor) >>
                               static_cast<uint32_t>(by.shift));
}

// --- results --------------------------------------------------------------------------------------
// Row i, column j at at[i * s_row + j], or, with `plane` columns in each of several images (fewer
// than 2^31 columns in all), at at[i * s_row + j / plane * s_image + j % plane].
struct Results {
  float* at;
  int64_t rows, cols, s_row;
  Divide plane;
  int64_t s_image;
  int64_t fours;       // four columns are adjacent and aligned
  // NUMERICS 2.5, of the element c[i * c_row + j * c_col]; without c where it is null.
  const float* c;
  int64_t c_row, c_col;
  F32 alpha, beta;
  int64_t scale_d, scale_c;
};
TS_INLINE float finished(const Results& r, float d, const float* c) {
  if (r.scale_d != 0) d = r.alpha.value * d;
  if (c != nullptr) {
    float term = *c;
    if (r.scale_c != 0) term = r.beta.value * term;
    d = d + term;
  }
  if (has_fault(Fault::one_bit)) d = bits_float(float_bits(d) ^ 1);
  return canonical_nan(planted(d));
}
TS_INLINE int64_t place_of(const Results& r, int64_t i, int64_t j) {
  if (r.plane.divisor == 0) return i * r.s_row + j;
  const int64_t image = quotient(r.plane, static_cast<uint32_t>(j));
  return i * r.s_row + image * r.s_image + (j - image * r.plane.divisor);
}
// A chunk's value before the last is no result yet: `raw`.
TS_INLINE void put_result(const Results& r, int64_t i, int64_t j, float d, bool raw) {
  float* to = r.at + place_of(r, i, j);
  if (raw) *to = d;
  else *to = finished(r, d, r.c == nullptr ? nullptr : r.c + i * r.c_row + j * r.c_col);
}

// The tile of this block: (down, across). Tiles that share operands run at about the same time.
struct TileAt { int64_t row, col; };
template <class T>
TS_INLINE TileAt tile_at(const Results& r) {
  const uint32_t down = static_cast<uint32_t>((r.rows + T::kRows - 1) / T::kRows);
  const uint32_t across = static_cast<uint32_t>((r.cols + T::kCols - 1) / T::kCols);
  const uint32_t each = kTogether * across, group = block_x() / each, first = group * kTogether;
  const uint32_t height = ts_min(down - first, kTogether), rest = block_x() - group * each;
  return {static_cast<int64_t>(first + rest % height) * T::kRows,
          static_cast<int64_t>(rest / height) * T::kCols};
}

// --- the product ----------------------------------------------------------------------------------
// The tile at `tile` of DOT over the terms [k0, k1), fewer than 2^31. k0 begins a chunk. `shared` has
// the bytes of Tile.shared (products/cuda/tiles.py).
template <class T, class LoadA, class LoadB>
TS_INLINE void multiply_tile(LoadA& load_a, LoadB& load_b, const Results& r, TileAt tile, int64_t k0,
                             int64_t k1, float* shared, bool raw) {
  constexpr int kRowFours = T::kThreadRows / 4, kColFours = T::kThreadCols / 4;
  constexpr int kSlices = static_cast<int>(kChunk) / T::kDepth;  // of a chunk
  constexpr int kTotalRows = T::kSharedTotals ? 1 : T::kThreadRows;
  constexpr int kTotalCols = T::kSharedTotals ? 1 : T::kThreadCols;
  const int thread = static_cast<int>(thread_index());
  const int warp = thread / 32, lane = thread % 32;
  const int down = warp / (T::kAcross / 8) * 4 + lane / 8;
  const int across = warp % (T::kAcross / 8) * 8 + lane % 8;
  const float* const a_at = shared + down * 4;
  const float* const b_at = shared + T::kDepth * T::kRowStep + across * 4;
  Four* const totals = reinterpret_cast<Four*>(shared + 2 * T::kSlice) + thread;

  // Nothing before the first chunk is -0, which changes no sum (NUMERICS 2.2, 3.2).
  float chain[T::kThreadRows][T::kThreadCols];
  float total[kTotalRows][kTotalCols];
  const Four nothing = {{-0.0f, -0.0f, -0.0f, -0.0f}};
  TS_UNROLL
  for (int i = 0; i < T::kThreadRows; ++i) {
    TS_UNROLL
    for (int j = 0; j < T::kThreadCols; ++j) chain[i][j] = 0.0f;
  }
  TS_UNROLL
  for (int i = 0; i < kTotalRows; ++i) {
    TS_UNROLL
    for (int j = 0; j < kTotalCols; ++j) total[i][j] = -0.0f;
  }
  if (T::kSharedTotals) {
    TS_UNROLL
    for (int i = 0; i < T::kThreadRows * kColFours; ++i) totals[i * T::kThreads] = nothing;
  }

  const int terms = static_cast<int>(k1 - k0);
  const int slices = terms / T::kDepth, rest = terms % T::kDepth;  // slices that are full
  const int copied = slices + (rest != 0 ? 1 : 0);
  // While slice s < plain is multiplied, the slice that is copied exists entirely.
  const int plain = load_a.whole && load_b.whole ? slices - 1 : 0;
  int now = 0;  // where the slice that is multiplied begins: 0 or kSlice
  const auto copy = [&](int s) TS_LAMBDA {
    // A race: the slice that is being multiplied is overwritten.
    float* to = shared + (has_fault(Fault::race) ? now : T::kSlice - now);
    if (s < plain) {
      load_a.start(to);
      load_b.start(to + T::kDepth * T::kRowStep);
    } else if (s + 1 < copied) {
      load_a.start(to, terms - (s + 1) * T::kDepth);
      load_b.start(to + T::kDepth * T::kRowStep, terms - (s + 1) * T::kDepth);
    }
    async_commit();
  };
  const auto arrive = [&]() TS_LAMBDA {
    if (!has_fault(Fault::missing_wait)) async_wait<0>();
    if (!has_fault(Fault::missing_barrier)) block_barrier();
  };
  const auto multiply = [&](int k) TS_LAMBDA {
    float x[T::kThreadRows], y[T::kThreadCols];
    TS_UNROLL
    for (int g = 0; g < kRowFours; ++g) {
      const Four found =
          *reinterpret_cast<const Four*>(a_at + now + k * T::kRowStep + g * T::kDown * 4);
      TS_UNROLL
      for (int i = 0; i < 4; ++i) x[g * 4 + i] = found.of[i];
    }
    TS_UNROLL
    for (int g = 0; g < kColFours; ++g) {
      const Four found =
          *reinterpret_cast<const Four*>(b_at + now + k * T::kColStep + g * T::kAcross * 4);
      TS_UNROLL
      for (int j = 0; j < 4; ++j) y[g * 4 + j] = found.of[j];
    }
    TS_UNROLL
    for (int i = 0; i < T::kThreadRows; ++i) {
      TS_UNROLL
      for (int j = 0; j < T::kThreadCols; ++j) chain[i][j] = fma1(x[i], y[j], chain[i][j]);
    }
  };

  if (copied > 0) {
    load_a.start(shared, terms);
    load_b.start(shared + T::kDepth * T::kRowStep, terms);
  }
  async_commit();
  TS_ROLLED
  for (int s = 0; s < slices;) {
    const int end = ts_min(s + kSlices, slices);
    TS_ROLLED
    for (; s < end; ++s) {
      arrive();
      copy(s);
      TS_UNROLL
      for (int k = 0; k < T::kDepth; ++k) multiply(k);
      now = T::kSlice - now;
    }
    if (s < copied && s % kSlices == 0) {  // the chunk is complete, and another one follows
      TS_UNROLL
      for (int i = 0; i < T::kThreadRows; ++i) {
        TS_UNROLL
        for (int g = 0; g < kColFours; ++g) {
          Four sum = nothing;
          Four* at = totals + (i * kColFours + g) * T::kThreads;
          if (T::kSharedTotals) sum = *at;
          TS_UNROLL
          for (int j = 0; j < 4; ++j) {
            float& p = chain[i][g * 4 + j];
            float& t = T::kSharedTotals ? sum.of[j] : total[i % kTotalRows][(g * 4 + j) % kTotalCols];
            t = t + p;
            p = 0.0f;
          }
          if (T::kSharedTotals) *at = sum;
        }
      }
    }
  }
  if (rest != 0) {
    arrive();
    TS_ROLLED
    for (int k = 0; k < rest; ++k) multiply(k);
  }

  TS_UNROLL
  for (int i = 0; i < T::kThreadRows; ++i) {
    const int64_t row = tile.row + (i / 4 * T::kDown + down) * 4 + i % 4;
    if (row >= r.rows) continue;
    TS_UNROLL
    for (int g = 0; g < kColFours; ++g) {
      Four sum = nothing;
      if (T::kSharedTotals) sum = totals[(i * kColFours + g) * T::kThreads];
      const int64_t col = tile.col + (g * T::kAcross + across) * 4;
      TS_UNROLL
      for (int j = 0; j < 4; ++j) {
        const float before =
            T::kSharedTotals ? sum.of[j] : total[i % kTotalRows][(g * 4 + j) % kTotalCols];
        sum.of[j] = before + chain[i][g * 4 + j];
      }
      if (r.fours != 0 && col + 4 <= r.cols) {
        if (!raw) {
          TS_UNROLL
          for (int j = 0; j < 4; ++j)
            sum.of[j] = finished(r, sum.of[j],
                                 r.c == nullptr ? nullptr : r.c + row * r.c_row + (col + j) * r.c_col);
        }
        *reinterpret_cast<Four*>(r.at + place_of(r, row, col)) = sum;
      } else {
        TS_UNROLL
        for (int j = 0; j < 4; ++j)
          if (col + j < r.cols) put_result(r, row, col + j, sum.of[j], raw);
      }
    }
  }
}

}  // namespace tallystick::TS_ISA
