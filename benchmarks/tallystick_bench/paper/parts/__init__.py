"""The parts of `bench paper`; each module's `measure(out, context)` makes its raw results."""
