// Defines every function of _core. Each runs in the floating-point environment of NUMERICS 1.7 and
// restores the caller's, whatever a library of the process, or a listener, has set.
#pragma once
#include <nanobind/nanobind.h>

#include <type_traits>

#include "environment.hpp"

namespace tallystick {

// nanobind converts arguments before it makes a call_guard, and results after the guard is gone. A
// Python float becomes a `double`, or a `double` a Python float, without arithmetic. A binary32
// would be rounded, or flushed, in the caller's environment. So functions take doubles and round
// inside.
template <class T>
constexpr bool kConvertsExactly = !std::is_same_v<std::decay_t<T>, float>;

// Defines `name` in `m`. `f` is a pointer, called through memory, so the compiler inlines no part
// of it and moves none to before the guard.
template <class R, class... A, class... Extra>
void define(nanobind::module_& m, const char* name, R (*f)(A...), const Extra&... extra) {
  static_assert((kConvertsExactly<A> && ... && kConvertsExactly<R>),
                "take and return doubles: nanobind would convert a float outside of the guard");
  m.def(name, f, extra..., nanobind::call_guard<FpEnvironment>());
}

}  // namespace tallystick
