// Python's door to the scatter class and embedding look-up (NUMERICS 4, 9).
#include "arrays.hpp"
#include "families/index.hpp"

namespace tallystick {
namespace {

using namespace arrays;
constexpr size_t kGrain = 65536;   // elements moved
constexpr size_t kColumns = 64;    // a thread's narrowest share of a row

size_t grain_rows(size_t row) { return row >= kGrain ? 1 : kGrain / (row ? row : 1); }
size_t grain_columns(size_t rows, size_t row) { return rows * row < kGrain ? row : kColumns; }

void embedding(In weight, Index index, Out out) {
  require(weight.ndim() == 2, "embedding: weight must have two axes");
  const size_t row = weight.shape(1), n = count(index);
  require(count(out) == n * row, "embedding: the output does not fit");
  require_disjoint({out}, {weight});
  require_indices(index, weight.shape(0), 0, false);
  const auto* w = reinterpret_cast<const uint32_t*>(weight.data());
  auto* o = reinterpret_cast<uint32_t*>(out.data());
  const auto fn = TS_DISPATCH(index).embedding;
  unlocked_ranges(n, grain_rows(row), [&](size_t b, size_t e) { fn(w, index.data(), row, o, b, e); });
}

void embedding_backward(In grad, Index index, int64_t padding_idx, Out out) {
  require(out.ndim() == 2, "embedding_dense_backward: the output must have two axes");
  const size_t row = out.shape(1), n = count(index), total = count(out);
  require(count(grad) == n * row, "embedding_dense_backward: grad and indices do not fit");
  require_disjoint({out}, {grad});
  require_indices(index, out.shape(0), 0, false);
  const float* g = grad.data();
  const int64_t* at = index.data();
  float* o = out.data();
  const auto& table = TS_DISPATCH(index);
  nb::gil_scoped_release unlocked;
  parallel_ranges(total, kGrain, [&](size_t b, size_t e) { table.fill_zero(o + b, e - b); });
  // By columns: a destination's sources stay with one thread, in ascending order (4.1).
  parallel_ranges(row, grain_columns(n, row), [&](size_t b, size_t e) {
    table.add_rows(g, at, n, row, padding_idx, o, b, e);
  });
}

// x and out are [outer, size, inner] and source is [outer, sources, inner].
void index_add(In x, Index index, In source, size_t outer, size_t inner, Out out) {
  const size_t n = count(index), total = count(x);
  require(count(out) == total && count(source) == outer * n * inner,
          "index_add: source, index and x do not fit");
  require(outer * inner == 0 ? total == 0 : total % (outer * inner) == 0,
          "index_add: outer and inner do not divide x");
  require_same_or_apart(out, {x});
  require_disjoint({out}, {source});
  const size_t size = outer * inner == 0 ? 0 : total / (outer * inner);
  if (outer * inner != 0) require_indices(index, size, 0, false);
  const float *from = x.data(), *s = source.data();
  const int64_t* at = index.data();
  float* o = out.data();
  const auto& table = TS_DISPATCH(index);
  nb::gil_scoped_release unlocked;
  parallel_ranges(total, kGrain, [&](size_t b, size_t e) { table.copy(from + b, o + b, e - b); });
  if (outer > 1) {
    parallel_ranges(outer, grain_rows(n * inner), [&](size_t b, size_t e) {
      for (size_t a = b; a < e; ++a)
        table.add_rows(s + a * n * inner, at, n, inner, -1, o + a * size * inner, 0, inner);
    });
  } else if (outer == 1) {
    parallel_ranges(inner, grain_columns(n, inner), [&](size_t b, size_t e) {
      table.add_rows(s, at, n, inner, -1, o, b, e);
    });
  }
}

}  // namespace
}  // namespace tallystick

void bind_index(nb::module_& m) {
  using namespace tallystick;
  define(m, "embedding", &embedding, "weight"_a, "index"_a, "out"_a,
         "Rows of an f32 weight by i64 indices (NUMERICS 9).");
  define(m, "embedding_dense_backward", &embedding_backward, "grad"_a, "index"_a, "padding_idx"_a,
         "out"_a, "Gradient rows added by ascending source; padding_idx < 0: none (NUMERICS 4.2).");
  define(m, "index_add", &index_add, "x"_a, "index"_a, "source"_a, "outer"_a, "inner"_a, "out"_a,
         "Source slices added to x's by ascending source (NUMERICS 4.3).");
}
