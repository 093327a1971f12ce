// Checks of the bindings, made before a kernel trusts its pointers: sizes, and that an output is
// either an input's own storage or apart from it.
#pragma once
#include <nanobind/ndarray.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/optional.h>

#include <array>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <stdexcept>

#include "define.hpp"

namespace tallystick {

namespace arrays {

using In = nb::ndarray<const float, nb::c_contig, nb::device::cpu>;
using Out = nb::ndarray<float, nb::c_contig, nb::device::cpu>;
using Index = nb::ndarray<const int64_t, nb::c_contig, nb::device::cpu>;
using OutIndex = nb::ndarray<int64_t, nb::c_contig, nb::device::cpu>;
using MaybeIn = std::optional<In>;
using MaybeOut = std::optional<Out>;
using Pair = std::array<int64_t, 2>;  // of the two axes of a plane

// Operands whose content a kernel refuses: `_core.OperandError`. Every machine refuses them, so the
// run is at fault. Sizes and shapes that do not fit are an ordinary ValueError.
class OperandError : public std::invalid_argument {
 public:
  using std::invalid_argument::invalid_argument;
};

inline void require(bool ok, const char* message) {
  if (!ok) throw nb::value_error(message);
}

template <class A>
size_t count(const A& a) {
  size_t n = 1;
  for (size_t d = 0; d < a.ndim(); ++d) n *= a.shape(d);
  return n;
}

// The memory of an array; none where it is absent.
struct Memory {
  uintptr_t begin = 0, end = 0;
  template <class A>
  Memory(const A& a)
      : begin(reinterpret_cast<uintptr_t>(a.data())), end(begin + count(a) * a.itemsize()) {}
  template <class A>
  Memory(const std::optional<A>& a) {
    if (a) *this = *a;
  }
  bool apart(const Memory& other) const {
    return end <= other.begin || other.end <= begin || begin == end || other.begin == other.end;
  }
};
using Memories = std::initializer_list<Memory>;
constexpr const char* kOverlap = "an output overlaps an input";

// No output overlaps an input, or another output.
inline void require_disjoint(Memories outs, Memories ins) {
  for (const Memory* out = outs.begin(); out != outs.end(); ++out) {
    for (const Memory& in : ins) require(out->apart(in), kOverlap);
    for (const Memory* other = outs.begin(); other != out; ++other)
      require(out->apart(*other), kOverlap);
  }
}
// `out` is exactly an input's storage, or no byte of it is.
inline void require_same_or_apart(const Memory& out, Memories ins) {
  for (const Memory& in : ins)
    require((out.begin == in.begin && out.end == in.end) || out.apart(in), kOverlap);
}

// Every index in [0, limit), or equal to `allowed`.
inline void require_indices(const Index& index, size_t limit, int64_t allowed, bool any_allowed) {
  const int64_t* p = index.data();
  const size_t n = count(index);
  bool ok = true;
  for (size_t i = 0; i < n; ++i)
    ok &= static_cast<uint64_t>(p[i]) < limit || (any_allowed && p[i] == allowed);
  if (!ok) throw OperandError("an index is out of range");
}

}  // namespace arrays
}  // namespace tallystick
