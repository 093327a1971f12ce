// Matrix products of the dot class (NUMERICS 2.4, 2.5), and the totals of chunks that were computed
// by several blocks. The host chooses a tile by the sizes (products/cuda/tiles.py).
#include "tiles.hpp"

namespace tallystick::TS_ISA {

struct Gemm {
  Strided a, b;
  int64_t a_batch, b_batch, out_batch;  // elements from one product of the batch to the next
  int64_t terms;
  // 0: a block computes whole results. Else the block (., y, .) computes chunk first_chunk + y, whose
  // value goes `split` elements after that of y - 1.
  int64_t split, first_chunk;
  Results results;
};

template <class T, template <class, int, int> class LoadA, template <class, int, int> class LoadB>
TS_INLINE void gemm_tile(const Gemm& p, float* shared) {
  Results r = p.results;
  Strided a = p.a, b = p.b;
  const int64_t batch = block_z(), part = block_y();
  a.at += batch * p.a_batch;
  b.at += batch * p.b_batch;
  r.at += batch * p.out_batch + part * p.split;
  const TileAt tile = tile_at<T>(r);
  const bool raw = p.split != 0;
  const int64_t k0 = raw ? (p.first_chunk + part) * kChunk : 0;
  const int64_t k1 = raw ? ts_min(k0 + kChunk, p.terms) : p.terms;
  LoadA<T, T::kRows, T::kRowStep> load_a(a, tile.row, r.rows, k0, k1);
  LoadB<T, T::kCols, T::kColStep> load_b(b, tile.col, r.cols, k0, k1);
  multiply_tile<T>(load_a, load_b, r, tile, k0, k1, shared, raw);
}

// Each operand's copies: ones or fours.
#define TS_GEMM(name, blocks, ...)                                                          \
  using Tile##name = Tile<__VA_ARGS__>;                                                     \
  TS_GEMM_KERNEL(name, blocks, 11, LoadOnes, LoadOnes)                                      \
  TS_GEMM_KERNEL(name, blocks, 14, LoadOnes, LoadFours)                                     \
  TS_GEMM_KERNEL(name, blocks, 41, LoadFours, LoadOnes)                                     \
  TS_GEMM_KERNEL(name, blocks, 44, LoadFours, LoadFours)
#define TS_GEMM_KERNEL(name, blocks, ways, LoadA, LoadB)                                    \
  TS_KERNEL_AT_ONCE(gemm_##name##_##ways, Gemm, Tile##name::kThreads, blocks) {             \
    TS_DYNAMIC_SHARED(float, shared);                                                       \
    gemm_tile<Tile##name, LoadA, LoadB>(p, shared);                                         \
  }

// Blocks at once; results of a block, of a thread; depth, totals in shared memory. The same table is
// in products/cuda/tiles.py.
TS_GEMM(128x128w, 2, 128, 128, 8, 16, 8, true)
TS_GEMM(128x128r, 1, 128, 128, 8, 8, 16, false)
TS_GEMM(64x128r, 2, 64, 128, 8, 8, 16, false)
TS_GEMM(64x64r, 4, 64, 64, 8, 8, 16, false)
TS_GEMM(32x64r, 4, 32, 64, 4, 8, 16, false)
TS_GEMM(16x64r, 8, 16, 64, 4, 4, 16, false)

// --- totals of chunks -----------------------------------------------------------------------------
struct Totals {
  Space space;           // of the results
  Strides strides[1];    // of c
  const float* parts;    // part q of result i at parts[q * space.count + i]
  int64_t count;         // of parts
  int64_t begins, ends;  // the parts begin with the first chunk; end with the last
  float* out;            // holds the total of the chunks before, until the last
  Results results;       // alpha, beta, c
};

TS_KERNEL(gemm_totals, Totals, 256) {
  for (int64_t i = first_item(); i < p.space.count; i += item_step()) {
    const float* part = p.parts + i;
    float total = p.begins != 0 ? *part : p.out[i] + *part;
    for (int64_t q = 1; q < p.count; ++q) total = total + part[q * p.space.count];
    if (p.ends != 0) {
      const float* c = p.results.c;
      if (c != nullptr) c += places<1>(p.space, p.strides, i).at[0];
      total = finished(p.results, total, c);
    }
    p.out[i] = total;
  }
}

}  // namespace tallystick::TS_ISA
