"""The command line. See docs/ARCHITECTURE.md for what belongs in this room."""

from __future__ import annotations

import os

# numpy's OpenBLAS reads it as it is loaded. By default its threads spin for tens of milliseconds
# after each product, on processors that the core's threads want (benchmarks/NOTES.md, R1). Four is
# the least it takes: 2^4 cycles. A process of the command line is ours to set up; one that imports
# the library is not. Where it is not set, steps are slower and no bit differs.
os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "4")
