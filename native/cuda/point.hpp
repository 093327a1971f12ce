// Loops of the pointwise kernels: a result element from one element of each operand.
//
// Where the host has found that it can, a thread takes four neighbouring elements with one access to
// each operand. The function of an element is the same text in both loops.
#pragma once
#include "device.hpp"

namespace tallystick::TS_ISA {

// W neighbouring elements; an access of at most 16 bytes.
template <class T, int W>
struct alignas(sizeof(T) * W > 16 ? 16 : sizeof(T) * W) Pack { T of[W]; };

template <int W, class T>
TS_INLINE Pack<T, W> take(const T* from) { return *reinterpret_cast<const Pack<T, W>*>(from); }
template <int W, class T>
TS_INLINE void give(T* to, const Pack<T, W>& made) { *reinterpret_cast<Pack<T, W>*>(to) = made; }

// An operand: a tensor, or one value, whose bits are the low ones of `value`, where data is null.
struct Source {
  const void* data;
  uint64_t value;
};
TS_INLINE void of_bits(uint64_t bits, float* x) { *x = bits_float(static_cast<uint32_t>(bits)); }
template <class T>
TS_INLINE void of_bits(uint64_t bits, T* x) { *x = static_cast<T>(bits); }

template <int Count>
struct Point {
  Space space;
  Strides strides[Count];
  Source in[Count];
  void* out;
  // 1 where groups of four elements from a multiple of four lie in one row, the innermost stride of
  // every operand is 1 or 0, and no address is less aligned than a Pack of four.
  int64_t fours;
  F32 p0, p1;
};
template <int Count>
struct Refusing {
  Point<Count> point;
  Refusal refusal;
};

// W elements of each operand from number K on.
template <int W, int K, class... T>
struct Reads {
  template <class P, class At>
  TS_INLINE void load(const P&, const At&) {}
  template <class F, class... V>
  TS_INLINE auto call(const F& f, int64_t i, int, V... v) const { return f(i, v...); }
};
template <int W, int K, class T, class... Rest>
struct Reads<W, K, T, Rest...> {
  Pack<T, W> mine;
  Reads<W, K + 1, Rest...> rest;
  template <class P, class At>
  TS_INLINE void load(const P& p, const At& at) {
    const T* data = static_cast<const T*>(p.in[K].data);
    const bool same = data == nullptr || p.strides[K].of[p.space.rank - 1] == 0;
    if (W == 1 || same) {
      T one;
      if (data == nullptr) of_bits(p.in[K].value, &one);
      else one = data[at.at[K]];
      for (int j = 0; j < W; ++j) mine.of[j] = one;
    } else {
      mine = take<W>(data + at.at[K]);
    }
    rest.load(p, at);
  }
  template <class F, class... V>
  TS_INLINE auto call(const F& f, int64_t i, int j, V... v) const {
    return rest.call(f, i, j, v..., mine.of[j]);
  }
};

// Results of float operators are canonical (NUMERICS 1.5); other elements are as they are.
TS_INLINE float finished(float x) { return canonical_nan(planted(x)); }
template <class T>
TS_INLINE T finished(T x) { return x; }

template <int W, class Out, class... T, class F, int Count>
TS_INLINE void point_at(const Point<Count>& p, int64_t i, const F& f) {
  Reads<W, 0, T...> reads;
  reads.load(p, places<Count>(p.space, p.strides, i));
  Pack<Out, W> made;
  TS_UNROLL
  for (int j = 0; j < W; ++j) made.of[j] = finished(static_cast<Out>(reads.call(f, i + j, j)));
  give<W>(static_cast<Out*>(p.out) + i, made);
}

// out[i] = f(i, one element of type T of each operand).
template <class Out, class... T, class F, int Count>
TS_INLINE void each(const Point<Count>& p, const F& f) {
  static_assert(sizeof...(T) == Count, "a type for each operand");
  if (!p.fours) {
    for (int64_t i = first_item(); i < p.space.count; i += item_step())
      point_at<1, Out, T...>(p, i, f);
    return;
  }
  const int64_t whole = p.space.count - p.space.count % 4;
  for (int64_t i = 4 * first_item(); i < whole; i += 4 * item_step())
    point_at<4, Out, T...>(p, i, f);
  for (int64_t i = whole + first_item(); i < p.space.count; i += item_step())
    point_at<1, Out, T...>(p, i, f);
}

}  // namespace tallystick::TS_ISA
