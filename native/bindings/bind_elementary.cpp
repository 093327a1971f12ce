// Python's door to the elementary functions: binary32 arrays in, binary32 arrays out.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <vector>

#include "define.hpp"
#include "../src/families/elementary.hpp"
#include "../src/thread_pool.hpp"

namespace nb = nanobind;

namespace tallystick {
namespace {

using In = nb::ndarray<const float, nb::c_contig, nb::device::cpu>;
using Out = nb::ndarray<float, nb::c_contig, nb::device::cpu>;

struct Named {
  const char* name;
  UnaryFn ElementaryTable::*fn;
};
using T = ElementaryTable;
constexpr Named kUnary[] = {
    {"exp", &T::exp},   {"log", &T::log},     {"tanh", &T::tanh},   {"erf", &T::erf},
    {"sigmoid", &T::sigmoid}, {"sin", &T::sin}, {"cos", &T::cos},   {"rsqrt", &T::rsqrt},
    {"expm1", &T::expm1}, {"log1p", &T::log1p}, {"exp2", &T::exp2}, {"log2", &T::log2}};
constexpr size_t kGrain = 8192;  // below this a second thread costs more than it brings

void check_size(size_t got, size_t want) {
  if (got != want) throw nb::value_error("input and output must have the same number of elements");
}

void elementary(const std::string& name, In x, Out out) {
  check_size(x.size(), out.size());
  for (const Named& f : kUnary) {
    if (name != f.name) continue;
    const UnaryFn fn = TS_DISPATCH(elementary).*f.fn;
    const float* in = x.data();
    float* result = out.data();
    const size_t n = x.size();
    nb::gil_scoped_release unlocked;
    parallel_ranges(n, kGrain, [&](size_t b, size_t e) { fn(in + b, result + b, e - b); });
    return;
  }
  throw nb::value_error(("no elementary function '" + name + "'").c_str());
}

void power(In x, In y, Out out) {
  check_size(x.size(), out.size());
  if (y.size() != 1) check_size(y.size(), out.size());
  const auto fn = TS_DISPATCH(elementary).pow;
  const size_t step = y.size() == 1 ? 0 : 1, n = x.size();
  const float *px = x.data(), *py = y.data();
  float* result = out.data();
  nb::gil_scoped_release unlocked;
  parallel_ranges(n, kGrain / 8, [&](size_t b, size_t e) {
    fn(px + b, py + b * step, step, result + b, e - b);
  });
}

std::vector<std::string> names() {
  std::vector<std::string> all;
  for (const Named& f : kUnary) all.emplace_back(f.name);
  return all;
}

}  // namespace
}  // namespace tallystick

void bind_elementary(nb::module_& m) {
  using namespace tallystick;
  define(m, "elementary_names", &names, "The functions that elementary() knows.");
  // noconvert: otherwise the kernel would write a converted copy of `out`, which is thrown away.
  define(m, "elementary", &elementary, nb::arg("name"), nb::arg("x").noconvert(),
         nb::arg("out").noconvert(),
         "out[i] = RN(f(x[i])) for a C-contiguous float32 x; out may be x (NUMERICS 5).");
  define(m, "pow", &power, nb::arg("x").noconvert(), nb::arg("y").noconvert(),
         nb::arg("out").noconvert(),
         "out[i] = RN(x[i] ** y[i]), or y[0] throughout when y has one element (NUMERICS 5.8).");
}
