// How every function of _core is defined: it runs in the floating-point environment of NUMERICS 1.7
// and puts the caller's back, whatever a library of the process, or a listener, has set.
#pragma once
#include <nanobind/nanobind.h>

#include <type_traits>

#include "environment.hpp"

namespace tallystick {

// nanobind converts arguments before a call_guard is made and results after it is gone. A Python
// float becomes a `double`, or a `double` a Python float, without arithmetic; binary32 would be
// rounded, or flushed, in the caller's environment. So functions take doubles and round inside.
template <class T>
constexpr bool kConvertsExactly = !std::is_same_v<std::decay_t<T>, float>;

// Defines `name` in `m`. `f` is a pointer, called through memory: nothing of it is inlined, and so
// moved, to before the guard.
template <class R, class... A, class... Extra>
void define(nanobind::module_& m, const char* name, R (*f)(A...), const Extra&... extra) {
  static_assert((kConvertsExactly<A> && ... && kConvertsExactly<R>),
                "take and return doubles: nanobind would convert a float outside of the guard");
  m.def(name, f, extra..., nanobind::call_guard<FpEnvironment>());
}

}  // namespace tallystick
