// The scatter class and embedding look-up, one copy per instruction set (NUMERICS 4, 9).
#include "families/index.hpp"

#include "tallystick/simd_f32.hpp"

namespace tallystick {
namespace TS_ISA {
namespace {

void embedding(const uint32_t* weight, const int64_t* index, size_t row, uint32_t* out,
               size_t begin, size_t end) {
  for (size_t i = begin; i < end; ++i) {
    uint32_t* to = out + i * row;
    std::memcpy(to, weight + static_cast<size_t>(index[i]) * row, row * 4);
#ifdef TALLYSTICK_FAULT
    if (row) to[0] ^= 1u;
#endif
  }
}

void fill_zero(float* out, size_t n) { std::memset(out, 0, n * 4); }

void copy(const float* x, float* out, size_t n) {
  size_t i = 0;
  for (; i + kF32Lanes <= n; i += kF32Lanes) v_store(out + i, v_canon(v_load(x + i)));
  if (i < n) v_store_n(out + i, v_canon(v_load_n(x + i, n - i)), n - i);
}

void add_rows(const float* source, const int64_t* index, size_t sources, size_t row, int64_t skip,
              float* out, size_t begin, size_t end) {
  for (size_t i = 0; i < sources; ++i) {
    if (skip >= 0 && index[i] == skip) continue;
    const float* s = source + i * row;
    float* d = out + static_cast<size_t>(index[i]) * row;
    size_t c = begin;
    for (; c + kF32Lanes <= end; c += kF32Lanes) v_put(d + c, v_add(v_load(d + c), v_load(s + c)));
    if (c < end) {
      const size_t k = end - c;
      v_put_n(d + c, v_add(v_load_n(d + c, k), v_load_n(s + c, k)), k);
    }
  }
}

}  // namespace
}  // namespace TS_ISA

namespace isa = TS_ISA;
TS_DEFINE_TABLE(IndexTable, index) = {isa::embedding, isa::fill_zero, isa::copy, isa::add_rows};

}  // namespace tallystick
