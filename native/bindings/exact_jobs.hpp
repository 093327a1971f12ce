// Many exact sums at once: how elements are cut among threads and operands brought into line.
#pragma once
#include <algorithm>
#include <vector>

#include "families/rounding.hpp"
#include "thread_pool.hpp"

namespace tallystick {

// A matrix as a kernel sees it: line x's term k is data[x·s_x + k·s_k].
struct View {
  const float* data = nullptr;
  ptrdiff_t s_x = 0, s_k = 0;
};

// Element e is the sum over k of a(i[e], k)·b(j[e], k), or of a(i[e], k) where b has no data, plus c[e].
struct ExactJob {
  View a, b;
  const int64_t *i = nullptr, *j = nullptr;
  const float* c = nullptr;
  size_t n = 0, terms = 0;
};

constexpr size_t kExactChunk = 1024;    // terms brought into line at a time
constexpr size_t kExactGrain = 16384;   // terms worth a task of their own

// Terms [k, k + n) of a line, contiguous: its own storage, or copied to `room`.
inline const float* line_of(const View& v, int64_t x, size_t k, size_t n, float* room) {
  const float* p = v.data + x * v.s_x + static_cast<ptrdiff_t>(k) * v.s_k;
  if (v.s_k == 1) return p;
  for (size_t i = 0; i < n; ++i, p += v.s_k) room[i] = *p;
  return room;
}

// with_products(a, b, n), with_terms(x, n) over one element's terms, in order.
template <class P, class T>
void each_chunk(const ExactJob& job, size_t e, const P& with_products, const T& with_terms) {
  float left[kExactChunk], right[kExactChunk];
  for (size_t k = 0; k < job.terms; k += kExactChunk) {
    const size_t n = std::min(kExactChunk, job.terms - k);
    const float* a = line_of(job.a, job.i[e], k, n, left);
    if (job.b.data) with_products(a, line_of(job.b, job.j[e], k, n, right), n);
    else with_terms(a, n);
  }
  if (job.c) with_terms(job.c + e, 1);
}

inline ExactAcc exact_acc(const RoundingTable& table, const ExactJob& job, size_t e) {
  ExactAcc acc;
  each_chunk(
      job, e, [&](const float* a, const float* b, size_t n) { table.acc_products(acc, a, b, n); },
      [&](const float* x, size_t n) { table.acc_terms(acc, x, n); });
  return acc;
}

template <class F>
void each_element(const ExactJob& job, const F& f) {
  parallel_ranges(job.n, kExactGrain / (job.terms + 1) + 1, [&](size_t first, size_t last) {
    for (size_t e = first; e < last; ++e) f(e);
  });
}

inline void exact_values(const ExactJob& job, int b, float* out) {
  const RoundingTable& table = TS_DISPATCH(rounding);
  each_element(job, [&](size_t e) {
    DotState state;
    each_chunk(
        job, e, [&](const float* a, const float* c, size_t n) { table.dot_products(state, a, c, n); },
        [&](const float* x, size_t n) { table.dot_terms(state, x, n); });
    if (!table.dot_decide(state, b, out + e)) out[e] = table.acc_round(exact_acc(table, job, e), b);
  });
}

inline void exact_records(const ExactJob& job, uint8_t* out) {
  const RoundingTable& table = TS_DISPATCH(rounding);
  each_element(job, [&](size_t e) {
    table.acc_store(exact_acc(table, job, e), out + e * kAccBytes);
  });
}

// SUM64 of `n` terms of each of `outputs` lines. Adjacent lines are taken together where the terms
// of one are not.
inline void sums64_of(const View& v, size_t outputs, size_t n, Sum64 what, double* out) {
  const RoundingTable& table = TS_DISPATCH(rounding);
  if (v.s_x != 1 || v.s_k == 1) {
    parallel_ranges(outputs, kExactGrain / (n + 1) + 1, [&](size_t first, size_t last) {
      for (size_t x = first; x < last; ++x)
        out[x] = table.sum64_row(v.data + static_cast<ptrdiff_t>(x) * v.s_x, n, v.s_k, what);
    });
    return;
  }
  const size_t tiles = (outputs + kSum64Columns - 1) / kSum64Columns;
  parallel_ranges(tiles, kExactGrain / (n * kSum64Columns + 1) + 1, [&](size_t first, size_t last) {
    std::vector<double> scratch(table.sum64_scratch(n));
    for (size_t t = first; t < last; ++t) {
      const size_t x = t * kSum64Columns;
      table.sum64_columns(v.data + x, n, v.s_k, std::min(kSum64Columns, outputs - x), what, out + x,
                          scratch.data());
    }
  });
}

}  // namespace tallystick
