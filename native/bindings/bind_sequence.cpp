// Python's door to sequences of calls (sequence.hpp).
#include "sequence.hpp"

namespace tallystick {

Sequence*& recorded_into() {
  thread_local Sequence* sequence = nullptr;
  return sequence;
}

}  // namespace tallystick

void bind_sequence(nb::module_& m) {
  using namespace tallystick;
  nb::class_<Sequence>(m, "Sequence",
                       "Calls of this module's functions, checked once and made many times. The "
                       "caller keeps their arrays.")
      .def(nb::init<>())
      .def("__len__", &Sequence::size)
      .def_prop_ro("done", &Sequence::done, "How many calls of the last run have ended.")
      .def("run", &Sequence::run, nb::call_guard<FpEnvironment>(), "Make all calls, in order.");
  define(m, "record", +[](Sequence& into) { recorded_into() = &into; }, "into"_a,
         "Until stop_recording, this thread's calls of ew1, ew2, ew3, elementary, pow, reduce_sum, "
         "concatenate_rows, mm_panels, mm_panels_stored and mm_panels_quantised go into the sequence "
         "and do nothing else.");
  define(m, "stop_recording", +[] { recorded_into() = nullptr; });
}
