#include "exact_jobs.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "thread_pool.hpp"

namespace tallystick {
namespace {

constexpr size_t kChunk = 1024;             // terms brought into line at a time
constexpr size_t kGrain = 16384;            // terms worth a task of their own
constexpr size_t kPanel = 32;               // adjacent lines read together: two cache lines a row
constexpr size_t kLine = kChunk + 16;       // lines apart in memory: not all in one set of the cache
constexpr size_t kBatch = 64;               // elements of a panel summed side by side
constexpr size_t kCopied = size_t(1) << 22; // floats of an operand worth copying into line
constexpr size_t kAhead = 12;               // strided terms fetched ahead: strides cross pages

size_t grain_of(const ExactJob& job) { return kGrain / (job.terms + 1) + 1; }

const float* place(const View& v, int64_t x, size_t k) {
  return v.data + x * v.s_x + static_cast<ptrdiff_t>(k) * v.s_k;
}

// Terms [k, k + n) of a line, contiguous: its own storage, or copied to `room`.
const float* line_of(const View& v, int64_t x, size_t k, size_t n, float* room) {
  const float* p = place(v, x, k);
  if (v.s_k == 1) return p;
  for (size_t i = 0; i < n; ++i) room[i] = p[static_cast<ptrdiff_t>(i) * v.s_k];
  return room;
}

// with_products(a, b, n), with_terms(x, n) over one element's terms.
template <class P, class T>
void each_chunk(const ExactJob& job, size_t e, const P& with_products, const T& with_terms) {
  float left[kChunk], right[kChunk];
  for (size_t k = 0; k < job.terms; k += kChunk) {
    const size_t n = std::min(kChunk, job.terms - k);
    const float* a = line_of(job.a, job.i[e], k, n, left);
    if (job.b.data) with_products(a, line_of(job.b, job.j[e], k, n, right), n);
    else with_terms(a, n);
  }
  if (job.c) with_terms(job.c + e, 1);
}

ExactAcc exact_acc(const RoundingTable& table, const ExactJob& job, size_t e) {
  ExactAcc acc;
  each_chunk(
      job, e, [&](const float* a, const float* b, size_t n) { table.acc_products(acc, a, b, n); },
      [&](const float* x, size_t n) { table.acc_terms(acc, x, n); });
  return acc;
}

void decide(const RoundingTable& table, const ExactJob& job, size_t e, DotState& state, int b,
            float* out) {
  if (job.c) table.dot_terms(state, job.c + e, 1);
  if (!table.dot_decide(state, b, out + e)) out[e] = table.acc_round(exact_acc(table, job, e), b);
}

// The view with its lines contiguous, in `room`. Panels of adjacent lines are read along their rows.
View copied(const View& v, size_t terms, std::vector<float>& room) {
  room.resize(v.lines * terms);
  float* to = room.data();
  const size_t panels = (v.lines + kPanel - 1) / kPanel;
  parallel_ranges(panels, kGrain / (kPanel * (terms + 1)) + 1, [&](size_t first, size_t last) {
    for (size_t p = first; p < last; ++p) {
      const size_t x = p * kPanel, lines = std::min(kPanel, v.lines - x);
      for (size_t k = 0; k < terms; ++k) {
        const float* from = place(v, static_cast<int64_t>(x), k);
        for (size_t l = 0; l < lines; ++l)
          to[(x + l) * terms + k] = from[static_cast<ptrdiff_t>(l) * v.s_x];
      }
    }
  });
  return {to, v.lines, static_cast<ptrdiff_t>(terms), 1};
}

// Elements of one panel of job.a, whose lines are not contiguous: each chunk of the lines they need
// is read once, row by row.
class Panel {
 public:
  Panel(const RoundingTable& table, const ExactJob& job)
      : table_(table), job_(job), state_(kBatch), room_(kPanel * kLine), other_(kChunk) {}

  void run(const std::pair<int64_t, size_t>* elements, size_t count, int b, float* out) {
    int slot[kPanel];
    int64_t line[kPanel];
    size_t lines = 0;
    std::fill_n(slot, kPanel, -1);
    for (size_t q = 0; q < count; ++q) {
      const int64_t x = job_.i[elements[q].second];
      int& s = slot[x % static_cast<int64_t>(kPanel)];
      if (s < 0) {
        s = static_cast<int>(lines);
        line[lines++] = x * job_.a.s_x;
      }
      state_[q] = DotState{};
    }
    for (size_t k = 0; k < job_.terms; k += kChunk) {
      const size_t n = std::min(kChunk, job_.terms - k);
      gather(line, lines, k, n);
      for (size_t q = 0; q < count; ++q) {
        const size_t e = elements[q].second;
        const int s = slot[job_.i[e] % static_cast<int64_t>(kPanel)];
        const float* a = room_.data() + static_cast<size_t>(s) * kLine;
        if (job_.b.data)
          table_.dot_products(state_[q], a, line_of(job_.b, job_.j[e], k, n, other_.data()), n);
        else
          table_.dot_terms(state_[q], a, n);
      }
    }
    for (size_t q = 0; q < count; ++q) decide(table_, job_, elements[q].second, state_[q], b, out);
  }

 private:
  const RoundingTable& table_;
  const ExactJob& job_;
  std::vector<DotState> state_;
  std::vector<float> room_, other_;

  void gather(const int64_t* line, size_t lines, size_t k, size_t n) {
    const float* row = place(job_.a, 0, k);
    const ptrdiff_t step = job_.a.s_k, ahead = static_cast<ptrdiff_t>(kAhead) * step;
    float* to = room_.data();
    for (size_t i = 0; i < n; ++i, row += step) {
      if (i + kAhead < n) __builtin_prefetch(row + line[0] + ahead);
      for (size_t l = 0; l < lines; ++l) to[l * kLine + i] = row[line[l]];
    }
  }
};

void by_panels(const ExactJob& job, int b, float* out) {
  std::vector<std::pair<int64_t, size_t>> order(job.n);
  for (size_t e = 0; e < job.n; ++e) order[e] = {job.i[e] / static_cast<int64_t>(kPanel), e};
  std::sort(order.begin(), order.end());
  const RoundingTable& table = TS_DISPATCH(rounding);
  parallel_ranges(job.n, grain_of(job), [&](size_t first, size_t last) {
    Panel panel(table, job);
    for (size_t at = first; at < last;) {
      size_t end = at + 1;
      while (end < last && end - at < kBatch && order[end].first == order[at].first) ++end;
      panel.run(order.data() + at, end - at, b, out);
      at = end;
    }
  });
}

void in_line(const ExactJob& job, int b, float* out) {
  const RoundingTable& table = TS_DISPATCH(rounding);
  parallel_ranges(job.n, grain_of(job), [&](size_t first, size_t last) {
    for (size_t e = first; e < last; ++e) {
      DotState state;
      const float* a = place(job.a, job.i[e], 0);
      if (job.b.data) table.dot_products(state, a, place(job.b, job.j[e], 0), job.terms);
      else table.dot_terms(state, a, job.terms);
      decide(table, job, e, state, b, out);
    }
  });
}

}  // namespace

void exact_values(const ExactJob& given, int b, float* out) {
  // Products commute. Let a be the operand with more lines, read by panels if need be, and bring a
  // small b into line as a whole.
  ExactJob job = given;
  std::vector<float> room;
  const auto swap = [&] {
    std::swap(job.a, job.b);
    std::swap(job.i, job.j);
  };
  if (job.b.data) {
    if (job.b.lines > job.a.lines) swap();
    if (job.b.s_k != 1 && job.b.lines < 8 * job.n && job.b.lines * job.terms <= kCopied)
      job.b = copied(job.b, job.terms, room);
    if (job.a.s_k == 1 && job.b.s_k != 1) swap();
  }
  if (job.a.s_k != 1) by_panels(job, b, out);
  else in_line(job, b, out);
}

void exact_records(const ExactJob& job, uint8_t* out) {
  const RoundingTable& table = TS_DISPATCH(rounding);
  parallel_ranges(job.n, grain_of(job), [&](size_t first, size_t last) {
    for (size_t e = first; e < last; ++e)
      table.acc_store(exact_acc(table, job, e), out + e * kAccBytes);
  });
}

// Adjacent lines are summed together where the terms of one line are not adjacent.
void sums64_of(const View& v, size_t terms, Sum64 what, double* out) {
  const RoundingTable& table = TS_DISPATCH(rounding);
  if (v.s_x != 1 || v.s_k == 1) {
    parallel_ranges(v.lines, kGrain / (terms + 1) + 1, [&](size_t first, size_t last) {
      for (size_t x = first; x < last; ++x)
        out[x] = table.sum64_row(place(v, static_cast<int64_t>(x), 0), terms, v.s_k, what);
    });
    return;
  }
  const size_t tiles = (v.lines + kSum64Columns - 1) / kSum64Columns;
  parallel_ranges(tiles, kGrain / (terms * kSum64Columns + 1) + 1, [&](size_t first, size_t last) {
    std::vector<double> scratch(table.sum64_scratch(terms));
    for (size_t t = first; t < last; ++t) {
      const size_t x = t * kSum64Columns;
      table.sum64_columns(v.data + x, terms, v.s_k, std::min(kSum64Columns, v.lines - x), what,
                          out + x, scratch.data());
    }
  });
}

}  // namespace tallystick
