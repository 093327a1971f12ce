// Python's door to the elementary functions: binary32 arrays in, binary32 arrays out.
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <vector>

#include "arrays.hpp"
#include "families/elementary.hpp"
#include "sequence.hpp"

namespace tallystick {
namespace {

using namespace arrays;

constexpr size_t kGrain = 8192;  // below this a second thread costs more than it brings

void check_size(size_t got, size_t want) {
  if (got != want) throw nb::value_error("input and output must have the same number of elements");
}

void elementary(const std::string& name, In x, Out out) {
  check_size(x.size(), out.size());
  for (const NamedUnary& f : kUnary) {
    if (name != f.name) continue;
    const auto member = f.fn;
    const size_t n = x.size();
    const float* from = x.data();
    float* to = out.data();
    perform([=] {
      const UnaryFn fn = TS_DISPATCH(elementary).*member;
      parallel_ranges(n, kGrain, [&](size_t b, size_t e) { fn(from + b, to + b, e - b); });
    });
    return;
  }
  throw nb::value_error(("no elementary function '" + name + "'").c_str());
}

void power(In x, In y, Out out) {
  check_size(x.size(), out.size());
  if (y.size() != 1) check_size(y.size(), out.size());
  const size_t n = x.size(), step = y.size() == 1 ? 0 : 1;
  const float *from = x.data(), *by = y.data();
  float* to = out.data();
  perform([=] {
    const auto fn = TS_DISPATCH(elementary).pow;
    parallel_ranges(n, kGrain / 8, [&](size_t b, size_t e) {
      fn(from + b, by + b * step, step, to + b, e - b);
    });
  });
}

std::vector<std::string> names() {
  std::vector<std::string> all;
  for (const NamedUnary& f : kUnary) all.emplace_back(f.name);
  return all;
}

}  // namespace
}  // namespace tallystick

void bind_elementary(nb::module_& m) {
  using namespace tallystick;
  define(m, "elementary_names", &names, "The functions that elementary() knows.");
  define(m, "elementary", &elementary, "name"_a, as_is("x"), as_is("out"),
         "out[i] = RN(f(x[i])) for a C-contiguous float32 x; out may be x (NUMERICS 5).");
  define(m, "pow", &power, as_is("x"), as_is("y"), as_is("out"),
         "out[i] = RN(x[i] ** y[i]), or y[0] throughout when y has one element (NUMERICS 5.8).");
}
