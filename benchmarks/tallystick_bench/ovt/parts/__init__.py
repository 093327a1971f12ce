"""The parts of `bench ovt`, one module each: `measure(file, context)` makes its entries."""
