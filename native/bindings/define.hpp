// Defines every function of _core. Each runs in the floating-point environment of NUMERICS 1.7 and
// restores the caller's, whatever a library of the process, or a listener, has set.
#pragma once
#include <nanobind/nanobind.h>

#include <type_traits>
#include <utility>

#include "environment.hpp"
#include "thread_pool.hpp"

namespace nb = nanobind;

namespace tallystick {

using nb::literals::operator""_a;

// The name of an array that is taken as it is, or refused: nanobind would convert it to another
// dtype or order, and a kernel that writes would write the copy, which is thrown away.
inline auto as_is(const char* name) { return nb::arg(name).noconvert(); }
// The name of an argument that may be None.
inline auto or_none(const char* name) { return nb::arg(name).none(); }

// nanobind converts arguments before it makes a call_guard, and results after the guard is gone. A
// Python float becomes a `double`, or a `double` a Python float, without arithmetic. A binary32
// would be rounded, or flushed, in the caller's environment. So functions take doubles and round
// inside.
template <class T>
constexpr bool kConvertsExactly = !std::is_same_v<std::decay_t<T>, float>;

// Defines `name` in `m`. `f` is a pointer, called through memory, so the compiler inlines no part
// of it and moves none to before the guard.
template <class R, class... A, class... Extra>
void define(nb::module_& m, const char* name, R (*f)(A...), const Extra&... extra) {
  static_assert((kConvertsExactly<A> && ... && kConvertsExactly<R>),
                "take and return doubles: nanobind would convert a float outside of the guard");
  m.def(name, f, extra..., nb::call_guard<FpEnvironment>());
}

// parallel_ranges, while other Python threads run.
template <class F>
void unlocked_ranges(size_t n, size_t grain, F&& f) {
  nb::gil_scoped_release unlocked;
  parallel_ranges(n, grain, std::forward<F>(f));
}

}  // namespace tallystick
