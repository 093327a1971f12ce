// Python's door to the elementwise family and to strided copies: broadcasting, collapsing of axes
// and the split over threads happen here, the arithmetic in families/elementwise.cpp.
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <array>
#include <cstring>
#include <string>
#include <vector>

#include "define.hpp"
#include "families/elementwise.hpp"
#include "sequence.hpp"

namespace tallystick {
namespace {

using In = nb::ndarray<nb::ro, nb::device::cpu>;
using Out = nb::ndarray<nb::device::cpu>;

constexpr size_t kMaxRank = 32;
constexpr size_t kGrain = 16384;  // elements; below this a second thread costs more than it brings

size_t find_op(const std::string& name, size_t arity) {
  for (size_t i = 0; i < kEwOps; ++i)
    if (name == kEwInfo[i].name && kEwInfo[i].arity == arity) return i;
  throw nb::value_error(("no elementwise kernel '" + name + "' of this arity").c_str());
}

bool is_f32(nb::dlpack::dtype t) { return t == nb::dtype<float>(); }
bool is_bool(nb::dlpack::dtype t) { return t.bits == 8 && t.lanes == 1; }

// The iteration space after dropping axes of one and merging neighbours that every operand walks
// evenly. Axis `rank - 1` is innermost. The output is contiguous.
struct Space {
  size_t rank = 0;
  size_t size[kMaxRank];
  ptrdiff_t stride[kEwArity][kMaxRank];
  size_t operands = 0;
  size_t total = 1;

  void add_axis(size_t n, const ptrdiff_t* s) {
    total *= n;
    if (n == 1) return;
    if (rank > 0) {
      bool merges = true;
      for (size_t k = 0; k < operands; ++k)
        merges = merges && stride[k][rank - 1] == s[k] * static_cast<ptrdiff_t>(n);
      if (merges) {
        size[rank - 1] *= n;
        for (size_t k = 0; k < operands; ++k) stride[k][rank - 1] = s[k];
        return;
      }
    }
    size[rank] = n;
    for (size_t k = 0; k < operands; ++k) stride[k][rank] = s[k];
    ++rank;
  }
};

template <class Array>
void check_c_contiguous(const Array& a) {
  int64_t expect = 1;
  for (size_t i = a.ndim(); i-- > 0;) {
    if (a.shape(i) != 1 && a.stride(i) != expect && a.size() != 0)
      throw nb::value_error("the output must be C-contiguous");
    expect *= static_cast<int64_t>(a.shape(i));
  }
}

Space space_of(const In* const* in, size_t operands, const Out& out) {
  if (out.ndim() > kMaxRank) throw nb::value_error("too many axes");
  check_c_contiguous(out);
  Space space;
  space.operands = operands;
  for (size_t k = 0; k < operands; ++k)
    if (in[k]->ndim() > out.ndim()) throw nb::value_error("an operand has more axes than the output");
  for (size_t axis = 0; axis < out.ndim(); ++axis) {
    const size_t n = out.shape(axis);
    ptrdiff_t s[kEwArity] = {0, 0, 0};
    for (size_t k = 0; k < operands; ++k) {
      const size_t lead = out.ndim() - in[k]->ndim();
      if (axis < lead) continue;
      const size_t have = in[k]->shape(axis - lead);
      if (have == n && n != 1) {
        s[k] = static_cast<ptrdiff_t>(in[k]->stride(axis - lead));
      } else if (have != 1) {
        throw nb::value_error("an operand does not broadcast to the output's shape");
      }
    }
    space.add_axis(n, s);
  }
  return space;
}

// Calls f(position of each operand, first output element, count) for stretches of [begin, end).
template <class F>
void walk(const Space& space, size_t begin, size_t end, F&& f) {
  const size_t inner = space.rank ? space.size[space.rank - 1] : 1;
  const size_t outer_rank = space.rank ? space.rank - 1 : 0;
  size_t index[kMaxRank];
  ptrdiff_t at[kEwArity] = {0, 0, 0};
  size_t rest = begin / inner, within = begin % inner;
  for (size_t a = outer_rank; a-- > 0;) {
    index[a] = rest % space.size[a];
    rest /= space.size[a];
    for (size_t k = 0; k < space.operands; ++k)
      at[k] += static_cast<ptrdiff_t>(index[a]) * space.stride[k][a];
  }
  for (size_t pos = begin; pos < end;) {
    const size_t n = inner - within < end - pos ? inner - within : end - pos;
    ptrdiff_t here[kEwArity];
    for (size_t k = 0; k < space.operands; ++k)
      here[k] = at[k] + (space.rank ? static_cast<ptrdiff_t>(within) * space.stride[k][outer_rank] : 0);
    f(here, pos, n);
    pos += n;
    within = 0;
    for (size_t a = outer_rank; a-- > 0;) {
      for (size_t k = 0; k < space.operands; ++k) at[k] += space.stride[k][a];
      if (++index[a] < space.size[a]) break;
      for (size_t k = 0; k < space.operands; ++k)
        at[k] -= static_cast<ptrdiff_t>(space.size[a]) * space.stride[k][a];
      index[a] = 0;
    }
  }
}

void apply(size_t op, const In* const* in, const Out& out, double p0, double p1) {
  const EwInfo& info = kEwInfo[op];
  std::array<size_t, kEwArity> width = {};
  std::array<const char*, kEwArity> base = {};
  for (size_t k = 0; k < info.arity; ++k) {
    const bool mask = info.takes_mask(k);
    if (mask ? !is_bool(in[k]->dtype()) : !is_f32(in[k]->dtype()))
      throw nb::value_error(mask ? "the mask must be bool or uint8" : "operands must be float32");
    width[k] = mask ? 1 : 4;
    base[k] = static_cast<const char*>(in[k]->data());
  }
  const bool compares = info.kind == 'c';
  if (compares ? !is_bool(out.dtype()) : !is_f32(out.dtype()))
    throw nb::value_error(compares ? "the output must be bool or uint8" : "the output must be float32");
  const Space space = space_of(in, info.arity, out);
  if (space.total == 0) return;
  const size_t out_width = compares ? 1 : 4;
  char* result = static_cast<char*>(out.data());
  const std::array<float, 2> param = {static_cast<float>(p0), static_cast<float>(p1)};
  perform([=] {
    const EwFn fn = TS_DISPATCH(elementwise).fn[op];
    const size_t arity = kEwInfo[op].arity;
    parallel_ranges(space.total, kGrain / kEwInfo[op].work, [&](size_t begin, size_t end) {
      walk(space, begin, end, [&](const ptrdiff_t* at, size_t pos, size_t n) {
        EwOperand operand[kEwArity];
        for (size_t k = 0; k < arity; ++k)
          operand[k] = {base[k] + at[k] * static_cast<ptrdiff_t>(width[k]),
                        space.rank ? space.stride[k][space.rank - 1] : 0};
        fn(operand, result + pos * out_width, n, param.data());
      });
    });
  });
}

void ew1(const std::string& name, In a, Out out, double p0, double p1) {
  const In* in[] = {&a};
  apply(find_op(name, 1), in, out, p0, p1);
}
void ew2(const std::string& name, In a, In b, Out out, double p0, double p1) {
  const In* in[] = {&a, &b};
  apply(find_op(name, 2), in, out, p0, p1);
}
void ew3(const std::string& name, In a, In b, In c, Out out, double p0, double p1) {
  const In* in[] = {&a, &b, &c};
  apply(find_op(name, 3), in, out, p0, p1);
}

template <class T>
void copy_stretch(const char* from, ptrdiff_t stride, char* to, size_t n) {
  const T* x = reinterpret_cast<const T*>(from);
  T* y = reinterpret_cast<T*>(to);
  for (size_t i = 0; i < n; ++i, x += stride) y[i] = *x;
}

// The innermost axis is contiguous: whole rows move.
void copy_rows(const Space& space, const char* from, char* to, ptrdiff_t width) {
  Space outer = space;
  const size_t inner = space.size[space.rank - 1], bytes = inner * static_cast<size_t>(width);
  --outer.rank;
  outer.total = space.total / inner;
  const auto fn = TS_DISPATCH(elementwise).copy_rows;
  if (outer.total == 1) {  // one long row is cut anywhere
    parallel_ranges(bytes, 8 * kGrain, [&](size_t b, size_t e) { std::memcpy(to + b, from + b, e - b); });
    return;
  }
  parallel_ranges(outer.total, kGrain / inner + 1, [&](size_t begin, size_t end) {
    walk(outer, begin, end, [&](const ptrdiff_t* at, size_t pos, size_t n) {
      fn(from + at[0] * width, outer.stride[0][outer.rank - 1] * width, to + pos * bytes, bytes, n);
    });
  });
}

// A matrix whose columns are contiguous in memory, repeated over outer axes: the one strided case
// worth a kernel (attention's and weight gradients' transposes).
bool copy_transposed(const Space& space, const char* from, char* to) {
  const size_t r = space.rank;
  if (r < 2 || space.stride[0][r - 2] != 1 || space.stride[0][r - 1] < 1) return false;
  const size_t rows = space.size[r - 2], cols = space.size[r - 1];
  if (rows < 8 || cols < 8) return false;
  const size_t ld = static_cast<size_t>(space.stride[0][r - 1]);
  const size_t matrices = space.total / (rows * cols);
  const size_t strips = (rows + 63) / 64;
  const auto fn = TS_DISPATCH(elementwise).transpose4;
  const size_t grain = kGrain / (64 * cols) + 1;
  parallel_ranges(matrices * strips, grain, [&](size_t begin, size_t end) {
    for (size_t t = begin; t < end; ++t) {
      size_t rest = t / strips;
      const size_t row = (t % strips) * 64, n = rows - row < 64 ? rows - row : 64;
      char* dst = to + 4 * (rest * rows + row) * cols;
      ptrdiff_t at = static_cast<ptrdiff_t>(row);
      for (size_t a = r - 2; a-- > 0;) {
        at += static_cast<ptrdiff_t>(rest % space.size[a]) * space.stride[0][a];
        rest /= space.size[a];
      }
      fn(from + 4 * at, ld, dst, cols, n, cols);
    }
  });
  return true;
}

void copy_strided(In x, Out out) {
  if (x.dtype() != out.dtype()) throw nb::value_error("copy_strided moves bits: dtypes must agree");
  if (x.ndim() != out.ndim()) throw nb::value_error("copy_strided needs equal shapes");
  for (size_t i = 0; i < x.ndim(); ++i)
    if (x.shape(i) != out.shape(i)) throw nb::value_error("copy_strided needs equal shapes");
  const In* in[] = {&x};
  const Space space = space_of(in, 1, out);
  if (space.total == 0) return;
  const ptrdiff_t width = x.dtype().bits / 8;
  const char* from = static_cast<const char*>(x.data());
  char* to = static_cast<char*>(out.data());
  const auto stretch = width == 8   ? copy_stretch<uint64_t>
                       : width == 4 ? copy_stretch<uint32_t>
                       : width == 2 ? copy_stretch<uint16_t>
                       : width == 1 ? copy_stretch<uint8_t>
                                    : nullptr;
  if (!stretch) throw nb::value_error("elements of 1, 2, 4 or 8 bytes only");
  nb::gil_scoped_release unlocked;
  if (space.rank == 0) {
    std::memcpy(to, from, static_cast<size_t>(width));
    return;
  }
  if (space.stride[0][space.rank - 1] == 1) return copy_rows(space, from, to, width);
  if (width == 4 && copy_transposed(space, from, to)) return;
  parallel_ranges(space.total, kGrain, [&](size_t begin, size_t end) {
    walk(space, begin, end, [&](const ptrdiff_t* at, size_t pos, size_t n) {
      stretch(from + at[0] * width, space.stride[0][space.rank - 1],
              to + pos * static_cast<size_t>(width), n);
    });
  });
}

// Arrays side by side along their last axis, whose elements are adjacent.
void concatenate_rows(const std::vector<nb::ndarray<const float, nb::device::cpu>>& parts,
                      nb::ndarray<float, nb::c_contig, nb::device::cpu> out) {
  const size_t axes = out.ndim();
  size_t columns = 0;
  if (axes == 0) throw nb::value_error("concatenate_rows takes arrays with axes");
  struct Part {
    Space space;  // its rows
    const float* data;
    size_t columns;
  };
  std::vector<Part> made;
  for (const auto& x : parts) {
    bool fits = x.ndim() == axes && (x.shape(axes - 1) <= 1 || x.stride(axes - 1) == 1);
    for (size_t i = 0; fits && i + 1 < axes; ++i) fits = x.shape(i) == out.shape(i);
    if (!fits) throw nb::value_error("concatenate_rows: a part does not fit");
    Part part = {{}, x.data(), x.shape(axes - 1)};
    part.space.operands = 1;
    for (size_t i = 0; i + 1 < axes; ++i) {
      const ptrdiff_t s = static_cast<ptrdiff_t>(x.stride(i));
      part.space.add_axis(x.shape(i), &s);
    }
    columns += part.columns;
    made.push_back(part);
  }
  if (columns != out.shape(axes - 1) || axes > kMaxRank)
    throw nb::value_error("concatenate_rows: the output does not fit");
  float* to = out.data();
  perform([=] {
    size_t first = 0;
    for (const Part& part : made) {
      if (part.space.total == 0) continue;
      walk(part.space, 0, part.space.total, [&](const ptrdiff_t* at, size_t pos, size_t n) {
        const ptrdiff_t step = part.space.rank ? part.space.stride[0][part.space.rank - 1] : 0;
        for (size_t i = 0; i < n; ++i)
          std::memcpy(to + (pos + i) * columns + first,
                      part.data + at[0] + static_cast<ptrdiff_t>(i) * step,
                      part.columns * sizeof(float));
      });
      first += part.columns;
    }
  });
}

}  // namespace
}  // namespace tallystick

void bind_elementwise(nb::module_& m) {
  using namespace tallystick;
  define(m, "ew1", &ew1, "name"_a, as_is("a"), as_is("out"), "p0"_a = 0.0, "p1"_a = 0.0,
         "out = name(a), elementwise; a: float32 of any strides, broadcast; out: C-contiguous.");
  define(m, "ew2", &ew2, "name"_a, as_is("a"), as_is("b"), as_is("out"), "p0"_a = 0.0, "p1"_a = 0.0,
         "out = name(a, b); operands of any strides, broadcast (NUMERICS 10.1).");
  define(m, "ew3", &ew3, "name"_a, as_is("a"), as_is("b"), as_is("c"), as_is("out"), "p0"_a = 0.0,
         "p1"_a = 0.0, "out = name(a, b, c); operands of any strides, broadcast.");
  define(m, "concatenate_rows", &concatenate_rows, "parts"_a, as_is("out"),
         "out = the parts side by side along the last axis, in which each is contiguous.");
  define(m, "copy_strided", &copy_strided, as_is("x"), as_is("out"),
         "Copies x, of any strides, to the C-contiguous out of the same shape and dtype.");
}
