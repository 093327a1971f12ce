// The extension module tallystick._core: dispatch control here, one bind_<family>.cpp per family.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <stdexcept>
#include <string>
#include <vector>

#include "arrays.hpp"
#include "context.hpp"
#include "define.hpp"
#include "dispatch.hpp"
#include "environment.hpp"

#define TS_BINDINGS(X) \
  X(commit) \
  X(sequence) \
  X(elementary) \
  X(gemm) \
  X(quantised) \
  X(elementwise) \
  X(reduce) \
  X(random) \
  X(nn) \
  X(attention) \
  X(index) \
  X(image) \
  X(optim) \
  X(published) \
  X(rounding) \
  X(exact)

#define TS_DECLARE(name) void bind_##name(nb::module_& m);
TS_BINDINGS(TS_DECLARE)
#undef TS_DECLARE

namespace {

std::vector<std::string> supported_isas() {
  using tallystick::Isa;
  std::vector<std::string> names;
  for (Isa isa : {Isa::scalar, Isa::avx2, Isa::avx512, Isa::neon})
    if (tallystick::isa_supported(isa)) names.emplace_back(tallystick::isa_name(isa));
  return names;
}

tallystick::Isa isa_called(const std::string& name) {
  tallystick::Isa isa;
  if (!tallystick::isa_from_name(name.c_str(), &isa))
    throw std::invalid_argument("unknown instruction set '" + name + "'");
  if (!tallystick::isa_supported(isa))
    throw std::invalid_argument("this machine or build cannot run instruction set '" + name + "'");
  return isa;
}

}  // namespace

NB_MODULE(_core, m) {
  using tallystick::define;
  nb::exception<tallystick::arrays::OperandError>(m, "OperandError", PyExc_ValueError);
  define(m, "isa", +[] { return std::string(tallystick::isa_name(tallystick::active_isa())); });
  define(m, "supported_isas", &supported_isas);
  define(m, "threads", &tallystick::thread_count);
  // These set the process's default context. A thread that has entered no context uses it.
  define(
      m, "set_isa",
      +[](const std::string& name) { tallystick::default_context().set_isa(isa_called(name)); },
      nb::arg("name"));
  define(
      m, "set_threads", +[](int n) { tallystick::default_context().set_threads(n); }, nb::arg("n"));
  nb::class_<tallystick::Context>(m, "Context", "Threads and instruction set of an execution.")
      .def(
          "__init__",
          [](tallystick::Context* made, int threads, const std::string& isa) {
            new (made) tallystick::Context(threads, isa_called(isa));
          },
          nb::arg("threads"), nb::arg("isa"))
      .def_prop_ro("threads", &tallystick::Context::threads)
      .def_prop_ro("isa",
                   [](const tallystick::Context& c) { return tallystick::isa_name(c.isa()); });
  // The calling thread computes in `context`, which the caller keeps, until it leaves it.
  define(m, "enter_context", &tallystick::enter_context, nb::arg("context"));
  define(m, "leave_context", &tallystick::leave_context);
  // These functions are about the environment itself, so they are outside of any guard.
  m.def("fp_environment_ok", &tallystick::fp_environment_ok,
        "Whether the calling thread has the environment of NUMERICS 1.7, found out by arithmetic.");
  m.def("fp_environment_enter", &tallystick::fp_environment_enter,
        "Sets the calling thread's environment (NUMERICS 1.7); returns the word that was there.");
  m.def("fp_environment_leave", &tallystick::fp_environment_leave, nb::arg("word"),
        "Puts back, in the same thread, a word that fp_environment_enter gave.");
  define(m, "compiler", +[] {
#if defined(__clang__)
    return std::string("clang ") + __clang_version__;
#else
    return std::string("gcc ") + __VERSION__;
#endif
  });
#define TS_BIND(name) bind_##name(m);
  TS_BINDINGS(TS_BIND)
#undef TS_BIND
}
