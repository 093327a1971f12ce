// Loaders of a product's operands (tiles.hpp), by the threads of a tile T together.
//
// A loader copies one operand's slices, in their order, so that term k of element x of a slice lies
// at to[k * Step + x]. start(to) is for slices of which all terms and elements exist;
// start(to, terms) for any.
#pragma once
#include "device.hpp"

namespace tallystick::TS_ISA {

// --- operands with strides ------------------------------------------------------------------------
// Element x, term k at at[x * s_x + k * s_k]. Neighbouring threads read neighbouring terms
// (along_terms) or elements, as they lie in memory.
struct Strided {
  const float* at;
  int64_t s_x, s_k, along_terms;
};

// Of an operand whose elements are adjacent (s_x is 1) and aligned: 16 bytes at a time.
template <class T, int Extent, int Step>
struct LoadFours {
  static constexpr int kAcross = Extent / 4, kTerms = T::kThreads / kAcross;
  static constexpr int kPasses = T::kDepth > kTerms ? T::kDepth / kTerms : 1;
  static_assert(T::kThreads % kAcross == 0, "threads take whole terms");

  const float* from;
  int64_t pass, slice;  // from one pass to the next, from one slice to the next
  int inside;           // elements of this thread's four that exist
  int term, place;
  bool whole;           // the tile's elements all exist

  TS_INLINE LoadFours(const Strided& o, int64_t x0, int64_t count, int64_t k0, int64_t) {
    const int thread = static_cast<int>(thread_index());
    const int x = thread % kAcross * 4;
    const int64_t rest = count - x0 - x;
    term = thread / kAcross;
    inside = static_cast<int>(rest < 0 ? 0 : rest < 4 ? rest : 4);
    whole = count - x0 >= Extent;
    pass = kTerms * o.s_k;
    slice = T::kDepth * o.s_k;
    from = o.at + (inside > 0 ? x0 + x : 0) + (k0 + term) * o.s_k;
    place = term * Step + x;
  }
  TS_INLINE void start(float* to) {
    if (kTerms <= T::kDepth || term < T::kDepth) {
      TS_UNROLL
      for (int e = 0; e < kPasses; ++e)
        async_copy4(to + place + e * kTerms * Step, from + e * pass);
    }
    from += slice;
  }
  TS_INLINE void start(float* to, int64_t terms) {
    const int64_t end = ts_min(terms, int64_t(T::kDepth));
    TS_ROLLED
    for (int e = 0; e < kPasses; ++e)
      if (term + e * kTerms < end)
        async_copy4(to + place + e * kTerms * Step, from + e * pass, inside);
    from += slice;
  }
};

// The place of a thread among 8 terms of as many elements as there are threads for.
template <class T>
struct Lane {
  static constexpr int kElements = T::kThreads / 8;
  int term, x;
  TS_INLINE explicit Lane(bool along_terms) {
    const int thread = static_cast<int>(thread_index());
    term = along_terms ? thread % 8 : thread / kElements;
    x = along_terms ? thread / 8 : thread % kElements;
  }
};

// Of any strides: 4 bytes at a time.
template <class T, int Extent, int Step>
struct LoadOnes {
  static constexpr int kElements = Lane<T>::kElements, kPasses = Extent / kElements;
  static_assert(kPasses >= 1 && kPasses <= 32 && Extent % kElements == 0, "whole passes");

  const float* from;
  int64_t pass, eight;  // from one pass to the next, from a term to the eighth after it
  uint32_t inside;      // bit e: the element of pass e exists
  int term, place;
  bool whole;

  TS_INLINE LoadOnes(const Strided& o, int64_t x0, int64_t count, int64_t k0, int64_t) {
    const Lane<T> lane(o.along_terms != 0);
    term = lane.term;
    inside = 0;
    for (int e = 0; e < kPasses; ++e)
      inside |= static_cast<uint32_t>(x0 + lane.x + e * kElements < count) << e;
    whole = count - x0 >= Extent;
    pass = kElements * o.s_x;
    eight = 8 * o.s_k;
    from = o.at + (x0 + lane.x) * o.s_x + (k0 + term) * o.s_k;
    place = term * Step + lane.x;
  }
  TS_INLINE void start(float* to) {
    TS_UNROLL
    for (int h = 0; h < T::kDepth / 8; ++h) {
      const float* at = from;
      TS_UNROLL
      for (int e = 0; e < kPasses; ++e) {
        async_copy1(to + place + h * 8 * Step + e * kElements, at);
        at += pass;
      }
      from += eight;
    }
  }
  TS_INLINE void start(float* to, int64_t terms) {
    TS_ROLLED
    for (int h = 0; h < T::kDepth / 8; ++h) {
      TS_ROLLED
      for (int e = 0; e < kPasses; ++e)
        if (term + 8 * h < terms && (inside >> e & 1) != 0)
          async_copy1(to + place + h * 8 * Step + e * kElements, from + e * pass);
      from += eight;
    }
  }
};

// --- operands whose addresses are gathered --------------------------------------------------------
// Operand gives: Element element(x), Term term(k), and
// const float* find(element, term, &inside): the address, of which nothing is read where `inside` is
// false and the value is +0. along_terms as above.
template <class T, int Extent, int Step, class Operand>
struct LoadGathered {
  static constexpr int kElements = Lane<T>::kElements, kPasses = Extent / kElements;
  static_assert(kPasses >= 1 && Extent % kElements == 0, "whole passes");

  const Operand& operand;
  typename Operand::Element elements[kPasses];
  int64_t k, end;
  int place;
  static constexpr bool whole = false;  // an element outside is read as one inside

  TS_INLINE LoadGathered(const Operand& o, int64_t x0, int64_t count, int64_t k0, int64_t k1)
      : operand(o) {
    const Lane<T> lane(o.along_terms != 0);
    TS_UNROLL
    for (int e = 0; e < kPasses; ++e)
      elements[e] = o.element(ts_min(x0 + lane.x + e * kElements, count - 1));
    k = k0 + lane.term;
    end = k1;
    place = lane.term * Step + lane.x;
  }
  TS_INLINE void start(float* to) { start(to, 0); }
  TS_INLINE void start(float* to, int64_t) {
    TS_UNROLL
    for (int h = 0; h < T::kDepth / 8; ++h) {
      if (k < end) {
        const auto term = operand.term(k);
        TS_UNROLL
        for (int e = 0; e < kPasses; ++e) {
          bool inside = true;
          const float* from = operand.find(elements[e], term, inside);
          async_copy1(to + place + h * 8 * Step + e * kElements, from, inside);
        }
      }
      k += 8;
    }
  }
};

}  // namespace tallystick::TS_ISA
