// Operators that move or make data (NUMERICS 9): bits move, values are never read as floats.
#include "point.hpp"

namespace tallystick::TS_ISA {

constexpr int kTakenAtOnce = 4;  // loads that a thread has under way

struct Check {
  Space space;
  Strides strides[1];
  const int64_t* index;
  int64_t size;
  Refusal refusal;
};
TS_KERNEL(movement_check, Check, 256) {
  for (int64_t i = first_item(); i < p.space.count; i += item_step()) {
    const int64_t chosen = p.index[places<1>(p.space, p.strides, i).at[0]];
    if (chosen < 0 || chosen >= p.size) refuse(p.refusal, i);
  }
}

// ---- reading by index: gather, index_select, embedding ------------------------------------------

struct Take {
  Space space;         // of the output, which is contiguous
  Strides strides[2];  // of the index; of the source, 0 along the axis that the index chooses
  const int64_t* index;
  const void* source;
  void* out;
  int64_t size, step;    // the chosen axis of the source
  int64_t each;          // elements that are moved as one
  int64_t inner, along;  // output elements of one index; indices
  Refusal refusal;
};

template <class T>
TS_INLINE void movement_take(const Take& p) {
  const T* source = static_cast<const T*>(p.source);
  T* out = static_cast<T*>(p.out);
  const int64_t count = p.space.count, grid = item_step();
  for (int64_t first = first_item(); first < count; first += kTakenAtOnce * grid) {
    int64_t chosen[kTakenAtOnce], from[kTakenAtOnce];
    TS_UNROLL
    for (int k = 0; k < kTakenAtOnce; ++k) {
      const int64_t i = first + k * grid;
      if (i >= count) continue;
      const auto at = places<2>(p.space, p.strides, i);
      chosen[k] = p.index[at.at[0]];
      from[k] = at.at[1];
    }
    T held[kTakenAtOnce];
    TS_UNROLL
    for (int k = 0; k < kTakenAtOnce; ++k) {
      const int64_t i = first + k * grid;
      if (i >= count) continue;
      if (chosen[k] < 0 || chosen[k] >= p.size) {
        held[k] = T{};
        refuse(p.refusal, i * p.each / p.inner % p.along);
      } else {
        held[k] = source[from[k] + chosen[k] * p.step];
      }
    }
    TS_UNROLL
    for (int k = 0; k < kTakenAtOnce; ++k)
      if (first + k * grid < count) out[first + k * grid] = held[k];
  }
}

TS_KERNEL(movement_take_1, Take, 256) { movement_take<uint8_t>(p); }
TS_KERNEL(movement_take_4, Take, 256) { movement_take<uint32_t>(p); }
TS_KERNEL(movement_take_8, Take, 256) { movement_take<uint64_t>(p); }
TS_KERNEL(movement_take_16, Take, 256) { movement_take<Wide>(p); }

// ---- writing by index (NUMERICS 9.3) ------------------------------------------------------------
// Every destination first learns the last source that goes to it: the greatest number is the same in
// whatever order the sources arrive. Then those sources alone are written.

struct Scatter {
  Space space;         // of the index
  Strides strides[4];  // of the index, the source; of `last` and the output, 0 along the axis
  const int64_t* index;
  const void* source;
  uint64_t* last;  // per destination: 1 + the number of its last source, 0 if there is none
  void* out;
  int64_t size, last_step, out_step;  // the axis
  Refusal refusal;
};

TS_KERNEL(movement_scatter_last, Scatter, 256) {
  for (int64_t i = first_item(); i < p.space.count; i += item_step()) {
    const auto at = places<4>(p.space, p.strides, i);
    const int64_t chosen = p.index[at.at[0]];
    if (chosen < 0 || chosen >= p.size)
      refuse(p.refusal, i);
    else
      atomic_max(p.last + at.at[2] + chosen * p.last_step, static_cast<uint64_t>(i) + 1);
  }
}

template <class T>
TS_INLINE void movement_scatter(const Scatter& p) {
  if (refused(p.refusal)) return;
  const T* source = static_cast<const T*>(p.source);
  T* out = static_cast<T*>(p.out);
  for (int64_t i = first_item(); i < p.space.count; i += item_step()) {
    const auto at = places<4>(p.space, p.strides, i);
    const int64_t chosen = p.index[at.at[0]];
    if (p.last[at.at[2] + chosen * p.last_step] == static_cast<uint64_t>(i) + 1)
      out[at.at[3] + chosen * p.out_step] = source[at.at[1]];
  }
}

TS_KERNEL(movement_scatter_1, Scatter, 256) { movement_scatter<uint8_t>(p); }
TS_KERNEL(movement_scatter_4, Scatter, 256) { movement_scatter<uint32_t>(p); }
TS_KERNEL(movement_scatter_8, Scatter, 256) { movement_scatter<uint64_t>(p); }

// ---- triangles ----------------------------------------------------------------------------------

struct Triangle {
  Space space;
  Strides strides[1];
  const void* x;
  void* out;
  int64_t rows, columns, diagonal;
  int64_t upper;  // 1: triu, 0: tril
};

template <class T>
TS_INLINE void movement_triangle(const Triangle& p) {
  const T* x = static_cast<const T*>(p.x);
  T* out = static_cast<T*>(p.out);
  for (int64_t i = first_item(); i < p.space.count; i += item_step()) {
    const int64_t all = i / p.columns, offset = i - all * p.columns - all % p.rows;
    const bool kept = p.upper ? offset >= p.diagonal : offset <= p.diagonal;
    out[i] = kept ? x[places<1>(p.space, p.strides, i).at[0]] : T{};
  }
}

TS_KERNEL(movement_triangle_1, Triangle, 256) { movement_triangle<uint8_t>(p); }
TS_KERNEL(movement_triangle_4, Triangle, 256) { movement_triangle<uint32_t>(p); }
TS_KERNEL(movement_triangle_8, Triangle, 256) { movement_triangle<uint64_t>(p); }

// ---- making -------------------------------------------------------------------------------------

struct Fill {
  void* out;
  int64_t count;
  uint64_t value;  // the bytes of the element, repeated
};

template <class T>
TS_INLINE void movement_fill(const Fill& p) {
  T* out = static_cast<T*>(p.out);
  const T value = static_cast<T>(p.value);
  for (int64_t i = first_item(); i < p.count; i += item_step()) out[i] = value;
}

TS_KERNEL(movement_fill_1, Fill, 256) { movement_fill<uint8_t>(p); }
TS_KERNEL(movement_fill_4, Fill, 256) { movement_fill<uint32_t>(p); }
TS_KERNEL(movement_fill_8, Fill, 256) { movement_fill<uint64_t>(p); }

// NUMERICS 9.1: each operation is rounded in binary64, then the sum to binary32.
struct ArangeF32 {
  float* out;
  int64_t count;
  F64 start, step;
};
TS_KERNEL(movement_arange_f32, ArangeF32, 256) {
  for (int64_t i = first_item(); i < p.count; i += item_step()) {
    const double along = static_cast<double>(i) * p.step.value;
    p.out[i] = static_cast<float>(along + p.start.value);
  }
}

struct ArangeI64 {
  int64_t* out;
  int64_t count;
  int64_t start, step;
};
TS_KERNEL(movement_arange_i64, ArangeI64, 256) {
  // Unsigned, because a product may leave 64 bits where the sum does not.
  for (int64_t i = first_item(); i < p.count; i += item_step())
    p.out[i] = static_cast<int64_t>(static_cast<uint64_t>(i) * static_cast<uint64_t>(p.step) +
                                    static_cast<uint64_t>(p.start));
}

// The elements that a choice copies keep their bits, so they are read as integers.
#define TS_WHERE(bytes, type)                                                              \
  TS_KERNEL(movement_where_##bytes, Point<3>, 256) {                                       \
    each<type, uint8_t, type, type>(                                                       \
        p, [](int64_t, uint8_t chosen, type a, type b) { return chosen != 0 ? a : b; });   \
  }
TS_WHERE(1, uint8_t)
TS_WHERE(4, uint32_t)
TS_WHERE(8, uint64_t)

}  // namespace tallystick::TS_ISA
